"""The status of a fleet: in columns if they fit, else stacked, and never cut."""

import io

from rich.console import Console

from kopitiam.cli.cluster import show
from kopitiam.fleet.status import NodeStatus

ALARM = "given up after 5 attempts: " + "it ends as soon as it is started, and says why in its log; " * 2
NODES = [
    NodeStatus(
        "gateway-1",
        "gateway",
        41234,
        "http://127.0.0.1:8440",
        "alive",
        1.7e9,
        3,
        False,
        183_000_000,
        None,
        "h1",
    ),
    NodeStatus("monitor-3", "monitor", 41235, None, "alive", 1.7e9, 12, True, 91_000_000, None, "h2"),
    NodeStatus(
        *(
            "spark-worker-1",
            "service",
            None,
            "spark://127.0.0.1:41236",
            "dead",
            1.7e9,
            None,
            False,
            0,
            ALARM,
            "h3",
        )
    ),
]
FACTS = [
    *("gateway-1", "41234", "http://127.0.0.1:8440", "183 MB", "monitor-3", "alive, leads", "41235", "91 MB"),
    *("spark-worker-1", "service", "spark://127.0.0.1:41236", "dead", "h1", "h2", "h3"),
]


def lines(**console: object) -> list[str]:
    file = io.StringIO()
    show(NODES, Console(file=file, color_system=None, **console))  # type: ignore[arg-type]
    return file.getvalue().splitlines()


def test_on_a_narrow_terminal_the_cells_of_a_node_are_below_its_name() -> None:
    shown = lines(width=80, force_terminal=True)
    assert shown[0] == "gateway-1"
    assert "  url http://127.0.0.1:8440" in shown
    assert "  state alive, leads" in shown
    assert max(map(len, shown[:-1])) <= 80
    assert_all_is_there(shown)


def test_on_a_wide_terminal_a_node_has_a_line() -> None:
    shown = lines(width=200, force_terminal=True)
    assert len(shown) == 1 + len(NODES) + 1
    assert_all_is_there(shown)


def test_a_pipe_gets_whole_lines() -> None:
    shown = lines(width=80, force_terminal=False)
    assert [line.split()[0] for line in shown[1:-1]] == [node.name for node in NODES]
    assert shown[1].endswith("183 MB  http://127.0.0.1:8440")
    assert_all_is_there(shown)


def assert_all_is_there(shown: list[str]) -> None:
    assert shown[-1].strip() == f"spark-worker-1: {ALARM}".strip()
    assert [fact for fact in FACTS if fact not in "\n".join(shown)] == []
    assert "…" not in "".join(shown)

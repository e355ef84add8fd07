"""A run's status in a terminal: tables and stages with bars, lists of runs in columns."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from kopitiam.cli.columns import column_lines
from kopitiam.cli.progress import chunks_processed, progress_line, status_lines
from kopitiam.contracts.api import RunStatus, StageStatus, TableStatus

RUN = "0123456789abcdef01234567"


def table(rows, expected):
    return TableStatus(
        chunks=3,
        rows=rows,
        expected_chunks=5,
        expected_rows=expected,
        sealed=expected is not None,
        rejected=2,
        columns=["a"],
        processed=2,
    )


def status(**changes):
    stages = {
        "filter_year": {
            "0": StageStatus(role="filter", expected=6, processed=3, rows=1_234_567, rows_out=1_000_000),
            "1": StageStatus(role="filter", expected=2, processed=2, rows=10, rows_out=7),
        },
        "max_products": {"0": StageStatus(role="rank", expected=None, processed=0, rows=0, rows_out=0)},
    }
    found = {
        "run": RUN,
        "label": "January",
        "state": "sealed",
        "questions": {},
        "created_at": 1.7e9,
        "finished_at": None,
        "tables": {"users": table(1_000_000, 2_000_000), "stores": table(7, None)},
        "stages": stages,
        "rejected": 4,
        "unmatched": None,
        "unmatched_by_table": None,
        "answers": None,
        "error": None,
    }
    return RunStatus(**(found | changes))


def console(width, terminal=True):
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, no_color=True)


def lines(found, width=100):
    return [line.plain for line in status_lines(found, console(width))]


def test_bars_of_tables_and_stages_show_the_share_that_is_done():
    shown = {line.split()[0]: line for line in lines(status(), 120)}
    assert "1,000,000 of 2,000,000 rows" in shown["users"]
    assert shown["users"].count("█") == 15
    assert shown["stores"].count("█") == 0
    assert "filter_year   1,000,007 of 1,234,577 rows went on" in shown["filter_year"]
    assert "5 of 8 chunks" in shown["filter_year"]
    assert shown["max_products"].split()[-2:] == ["0", "chunks"]


def test_shards_are_shown_where_there_are_several():
    shown = [" ".join(line.split()[:12]) for line in lines(status()) if line.lstrip().startswith("shard")]
    assert shown == [
        "shard 0 1,000,000 of 1,234,567 rows went on 3 of 6 chunks",
        "shard 1 7 of 10 rows went on 2 of 2 chunks",
    ]


def test_label_state_and_error_are_shown():
    shown = lines(status(state="failed", error="3 rows too many", label="<bold>\x1b[1m"))
    assert shown[0].startswith(f"run {RUN} (<bold>�[1m): failed, since ")
    assert "(\u2068קפה\u2069): sealed" in lines(status(label="קפה"))[0]
    assert shown[1] == "3 rows too many"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_figure_is_cut_and_no_line_too_long(width):
    shown = lines(status(), width)
    text = " ".join(" ".join(shown).split())
    for figure in (
        "1,000,000 of 2,000,000 rows",
        "5 of 8 chunks",
        "1,000,007 of 1,234,577 rows went on",
        "2 rejected",
    ):
        assert figure in text
    if width > 40:
        assert max(cell_len(part) for line in shown for part in line.splitlines()) <= width


def test_a_run_without_stages_shows_none():
    assert lines(status(tables={}, stages={}))[1:] == ["tables"]


def test_the_progress_line_counts_each_chunk_once():
    assert progress_line(status()) == "4 of 10 chunks processed · sealed"
    assert chunks_processed(status(tables={})) == (0, 0)


def test_before_end_the_received_chunks_are_the_expected_ones():
    open_table = table(7, None).model_copy(update={"expected_chunks": None})
    assert chunks_processed(status(tables={"stores": open_table})) == (2, 3)


TITLES = ("run", "label", "rows")
ROWS = [(RUN, "January", "1,234,567"), (RUN, "a\x07b", "7")]


def columns(width, terminal=True):
    return [line.plain for line in column_lines(console(width, terminal), TITLES, ROWS, {2})]


def test_columns_line_up_with_figures_to_the_right():
    assert columns(80) == [
        "run                       label         rows",
        f"{RUN}  January  1,234,567",
        f"{RUN}  a�b              7",
    ]


def test_columns_that_do_not_fit_are_stacked_on_a_terminal_and_whole_in_a_pipe():
    assert columns(40)[:3] == [RUN, "  label January", "  rows 1,234,567"]
    assert columns(40, terminal=False) == columns(80)

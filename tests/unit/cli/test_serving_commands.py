"""`kopi serve` and the nodes of a fleet, before they serve: how they are told to leave, and how they log."""

from types import ModuleType

import pytest
from typer.testing import CliRunner

from kopitiam.cli import nodes, serve
from kopitiam.cli.app import app
from kopitiam.cli.signals import Terminated

COMMANDS = [("serve", serve), ("gateway", nodes), ("pipeline", nodes), ("monitor", nodes)]


@pytest.mark.parametrize(("command", "module"), COMMANDS)
def test_a_signal_to_leave_that_comes_while_it_loads_ends_with_0(
    command: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(_config: object) -> None:
        raise Terminated

    monkeypatch.setattr(module, "load_settings", leave)
    monkeypatch.setattr(module, "set_up_logs", lambda *_, **__: None)
    done = CliRunner().invoke(app, [command])
    assert (done.exit_code, done.exception) == (0, None)


@pytest.mark.parametrize(("command", "module"), COMMANDS)
@pytest.mark.parametrize(
    ("said", "is_json"),
    [(((), None), False), ((("--log-json",), None), True), (((), "1"), True), (((), "0"), False)],
)
def test_logs_are_json_if_a_flag_or_the_environment_says_so(
    command: str,
    module: ModuleType,
    said: tuple[tuple[str, ...], str | None],
    is_json: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags, environment = said
    chosen = []

    def note(_node: str, *, is_verbose: bool, as_json: bool) -> None:
        chosen.append((is_verbose, as_json))
        raise Terminated

    monkeypatch.setattr(module, "set_up_logs", note)
    CliRunner().invoke(app, [command, *flags], env={"KOPI_LOG_JSON": environment})
    assert chosen == [(False, is_json)]

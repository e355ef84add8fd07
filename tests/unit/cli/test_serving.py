"""`kopi serve` and the nodes of a fleet during startup: signals, logs, and the check of the address."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kopitiam.cli import serving
from kopitiam.cli.app import app
from kopitiam.cli.process import Terminated

pytestmark = pytest.mark.slow

COMMANDS = ["serve", "gateway", "pipeline", "monitor"]


@pytest.mark.parametrize("command", COMMANDS)
def test_sigterm_during_startup_ends_with_0(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminate(_config: object) -> None:
        raise Terminated

    monkeypatch.setattr(serving, "load_settings", terminate)
    monkeypatch.setattr(serving, "set_up_logs", lambda *_, **__: None)
    done = CliRunner().invoke(app, [command])
    assert (done.exit_code, done.exception) == (0, None)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("choice", "is_json"),
    [(((), None), False), ((("--log-json",), None), True), (((), "1"), True), (((), "0"), False)],
)
def test_logs_are_json_with_the_flag_or_the_environment_variable(
    command: str,
    choice: tuple[tuple[str, ...], str | None],
    is_json: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags, environment = choice
    chosen = []

    def record(_node: str, *, is_verbose: bool, as_json: bool) -> None:
        chosen.append((is_verbose, as_json))
        raise Terminated

    monkeypatch.setattr(serving, "set_up_logs", record)
    CliRunner().invoke(app, [command, *flags], env={"KOPI_LOG_JSON": environment})
    assert chosen == [(False, is_json)]


@pytest.mark.parametrize("command", [("serve", "--host", "0.0.0.0"), ("gateway",), ("cluster", "up")])
def test_nothing_listens_beyond_this_machine_without_tokens(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOPI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KOPI_GATEWAY__LISTEN", "0.0.0.0:0")
    monkeypatch.setenv("KOPI_BUS__URL", "amqp://127.0.0.1:1/")
    done = subprocess.run(
        [sys.executable, "-m", "kopitiam", *command], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    complaint = done.stderr.strip()
    assert complaint.startswith("kopi: gateway.listen 0.0.0.0:0: ")
    assert "gateway.tokens" in complaint
    assert "--insecure" in complaint
    assert "\n" not in complaint


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_help_does_not_show_how_to_listen_everywhere_without_tokens(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert "0.0.0.0" not in shown
    assert "--insecure" in shown

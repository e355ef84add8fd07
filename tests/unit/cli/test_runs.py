"""`kopi runs`, `status`, `results`, `cancel`, `analyze --server` against a gateway: their text and JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kopitiam.cli import submit
from kopitiam.cli.app import app
from kopitiam.cli.options import connected
from kopitiam.client.client import Client
from kopitiam.client.http import PATIENCE_SECONDS
from kopitiam.contracts.errors import ConfigError, RunError, ServiceError
from tiny_gateway import Fault, TinyGateway, serving


@pytest.fixture
def gateway() -> Iterator[TinyGateway]:
    with serving() as gateway:
        yield gateway


@pytest.fixture
def run(gateway: TinyGateway) -> str:
    with Client(gateway.url) as client:
        return client.open_run("January \x1b[1m").id


def kopi(gateway: TinyGateway, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--server", gateway.url])


def test_runs_are_listed_whole_in_a_pipe(gateway: TinyGateway, run: str) -> None:
    shown = kopi(gateway, "runs")
    title, line = shown.output.splitlines()
    assert title.split() == ["run", "label", "state", "since", "rows", "rejected"]
    assert line.startswith(f"{run}  January �[1m  open")
    assert line.split()[-2:] == ["0", "0"]
    assert [told["run"] for told in json.loads(kopi(gateway, "runs", "--json").output)] == [run]


def test_an_empty_list_of_runs_says_so(gateway: TinyGateway) -> None:
    assert kopi(gateway, "runs").output == "no runs\n"
    assert json.loads(kopi(gateway, "runs", "--json").output) == []


def test_a_status_has_its_tables(gateway: TinyGateway, run: str) -> None:
    shown = kopi(gateway, "status", run).output
    assert "\x1b" not in shown
    assert all(table in shown for table in ("stores", "menu_items", "users", "transactions"))
    assert json.loads(kopi(gateway, "status", run, "--json").output)["state"] == "open"


def test_watch_and_answers_exclude_each_other(gateway: TinyGateway, run: str) -> None:
    assert isinstance(kopi(gateway, "status", run, "--watch", "--answers").exception, ConfigError)


def test_answers_of_an_unfinished_run_are_refused(gateway: TinyGateway, run: str) -> None:
    assert isinstance(kopi(gateway, "results", run).exception, RunError)


def test_cancel_prints_the_new_state_of_the_run(gateway: TinyGateway, run: str) -> None:
    assert kopi(gateway, "cancel", run).output == f"run {run} is ended\n"
    assert json.loads(kopi(gateway, "cancel", run, "--json").output)["state"] == "ended"
    assert json.loads(kopi(gateway, "cancel", "--all", "--json").output) == []


def test_without_a_server_flag_the_gateway_of_the_settings_is_called(
    gateway: TinyGateway, run: str, sound_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KOPI_SERVER", raising=False)
    listen = gateway.url.removeprefix("http://").replace("127.0.0.1", "0.0.0.0")
    config = tmp_path / "fleet.toml"
    config.write_text(f'[gateway]\nlisten = "{listen}"\n')
    of_file = ("--config", str(config))
    assert [told["run"] for told in shown("runs", *of_file)] == [run]
    assert shown("status", run, *of_file)["run"] == run
    assert isinstance(CliRunner().invoke(app, ["results", run, *of_file]).exception, RunError)
    assert shown("submit", str(sound_folder), "--no-wait", *of_file)["run"] in gateway.runs
    assert shown("cancel", run, *of_file)["state"] == "ended"
    monkeypatch.setenv("KOPI_GATEWAY__LISTEN", listen)
    assert shown("status", run)["run"] == run


def test_a_gateway_is_waited_for_longer_once_the_run_is_open(
    gateway: TinyGateway, sound_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def watched(*words: Any) -> Any:
        waits.append(words[3])
        return connected(*words)

    monkeypatch.setattr(submit, "connected", watched)
    assert kopi(gateway, "submit", str(sound_folder), "--no-wait").exit_code == 0
    later, first = waits
    assert first < later == PATIENCE_SECONDS
    waits.clear()
    assert kopi(gateway, "submit", str(sound_folder), "--no-wait", "--patience", "7").exit_code == 0
    assert waits == [7, 7]


def test_an_analysis_that_fails_cancels_its_run_at_the_service(
    gateway: TinyGateway, sound_folder: Path
) -> None:
    gateway.faults.append(Fault(r"POST .*/stores/end", status=500))
    assert isinstance(kopi(gateway, "analyze", str(sound_folder)).exception, ServiceError)
    assert [run.state for run in gateway.runs.values()] == ["ended"]


def shown(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)

"""The public client as a notebook uses it: submit, wait, read and download answers."""

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path

import pytest

import kopitiam
from kopitiam.client.client import Client, own_questions
from kopitiam.client.downloads import first_rejected, open_download
from kopitiam.client.http import Transport
from kopitiam.client.upload import TableProgress
from kopitiam.contracts.api import RunStatus
from kopitiam.contracts.errors import ConfigError, InputError, RunError, RunFailed, RunNotFound, RunOver
from kopitiam.questions.catalog import builtin, read_json
from tiny_gateway import FIRST_RUN, FakeTime, Fault, TinyGateway, serving


@pytest.fixture
def gateway() -> Iterator[TinyGateway]:
    with serving("token") as gateway:
        yield gateway


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def client(gateway: TinyGateway, time: FakeTime) -> Iterator[Client]:
    with Client.over(Transport(gateway.url, "token", sleep=time.sleep, clock=time.clock)) as client:
        yield client


def test_the_package_loads_the_client_on_first_use() -> None:
    assert kopitiam.Client is Client
    code = "import sys, kopitiam; assert 'httpx' not in sys.modules and 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
    with pytest.raises(AttributeError):
        kopitiam.Customer  # type: ignore[attr-defined]  # noqa: B018


def test_a_submitted_folder_is_answered(
    gateway: TinyGateway, client: Client, time: FakeTime, sound_folder: Path
) -> None:
    gateway.polls_to_go = 3
    sent: list[TableProgress] = []
    run = client.submit(sound_folder, "January", years=2024, min_amount=Decimal("70.5"), progress=sent.append)
    assert run.id == FIRST_RUN
    states: list[RunStatus] = []
    assert run.wait(progress=states.append).state == "done"
    assert [status.state for status in states] == ["sealed"] * 3 + ["done"]
    assert time.slept == pytest.approx([0.1, 0.15, 0.225])
    assert (states[0].label, states[0].questions["years"]) == ("January", [2024, 2024])
    assert states[0].questions["min_amount"] == "70.5"
    assert run.answer("3").to_pylist() == [
        {"year_half_created_at": "3-year_half_created_at", "store_name": "3-store_name", "tpv": "3-tpv"}
    ]
    assert list(run.answers()) == list(builtin())
    assert sent[-1].is_sealed


def test_a_lost_response_does_not_open_a_second_run(gateway: TinyGateway, client: Client) -> None:
    gateway.faults.append(Fault("POST .*/runs", times=2, is_stored=True))
    client.open_run()
    assert list(gateway.runs) == [FIRST_RUN]
    assert gateway.count("POST") == 3
    client.open_run()
    assert len(gateway.runs) == 2


def test_the_same_key_gives_the_same_run(client: Client) -> None:
    assert client.open_run(idempotency_key="monday") == client.open_run(idempotency_key="monday")


def test_invalid_parameters_are_not_sent(gateway: TinyGateway, client: Client) -> None:
    with pytest.raises(ConfigError, match="top 0"):
        client.open_run(top=0)
    assert gateway.calls == []


def test_a_folder_with_a_flaw_opens_no_run(gateway: TinyGateway, client: Client, sound_folder: Path) -> None:
    (sound_folder / "users" / "users_202401.csv").write_text("user_id\n7\n")
    with pytest.raises(InputError, match="no column birthdate"):
        client.submit(sound_folder)
    assert gateway.calls == []


def test_an_upload_can_be_resumed_by_its_id(gateway: TinyGateway, client: Client, sound_folder: Path) -> None:
    gateway.faults.append(Fault("POST .*/transactions/end", status=410, error="over"))
    with pytest.raises(RunOver):
        client.submit(sound_folder)
    run = client.submit(sound_folder, resume=FIRST_RUN)
    run.wait()
    assert gateway.puts("transactions") == [0]
    with pytest.raises(ConfigError, match="resumed"):
        client.submit(sound_folder, resume=FIRST_RUN, top=5)


@pytest.mark.parametrize(("state", "error"), [("failed", RunFailed), ("ended", RunOver)])
def test_waiting_for_a_run_that_is_over_says_why(
    gateway: TinyGateway, client: Client, state: str, error: type[Exception]
) -> None:
    run = client.open_run()
    gateway.runs[run.id].state = state
    gateway.runs[run.id].error = "3 rows too many"
    with pytest.raises(error, match="3 rows too many"):
        run.wait()


def test_waiting_ends_with_its_timeout(client: Client, time: FakeTime) -> None:
    with pytest.raises(TimeoutError, match="still open after 10 s"):
        client.open_run().wait(timeout_seconds=10)
    assert 9 < time.now <= 10
    assert max(time.slept) == 0.3


def test_all_forms_are_downloaded(
    client: Client, gateway: TinyGateway, sound_folder: Path, tmp_path: Path
) -> None:
    with (sound_folder / "users" / "users_202401.csv").open("a") as file:
        file.write("x,1990-01-01\n")
    run = client.submit(sound_folder)
    run.wait()
    out = tmp_path / "answers" / "today"
    run.download(out)
    names = {f"results_query_{name}.{form}" for name in builtin() for form in ("csv", "json", "parquet")}
    assert {file.name for file in out.iterdir()} == names | {"summary.json", "rejected.csv", "report.html"}
    assert (out / "results_query_2_1.csv").read_text() == "answer 2_1 as csv\n"
    answers, summary = open_download(out)
    assert (summary.read, summary.used, summary.rejected) == (7, 6, 1)
    assert [(row.file, row.line) for row in first_rejected(out)] == [("users/users_202401.csv", 3)]
    assert answers.rows("4") == 1


def test_a_broken_download_leaves_no_summary(
    client: Client, gateway: TinyGateway, sound_folder: Path, tmp_path: Path
) -> None:
    run = client.submit(sound_folder)
    run.wait()
    run.download(tmp_path)
    assert not (tmp_path / "rejected.csv").exists()
    gateway.faults.append(Fault("GET .*/results/4.json", status=500, error="internal"))
    with pytest.raises(Exception, match="told to fail"):
        run.download(tmp_path)
    assert not (tmp_path / "summary.json").exists()


def test_answers_of_an_open_run_are_refused(client: Client) -> None:
    run = client.open_run()
    with pytest.raises(RunError, match="is open"):
        run.answer("3")
    with pytest.raises(InputError, match="no answer '5'"):
        run.answer("5")


def test_runs_are_fetched_page_by_page(gateway: TinyGateway, client: Client) -> None:
    for _ in range(60):
        client.open_run()
    gateway.calls.clear()
    assert len(list(islice(client.runs(), 10))) == 10
    assert gateway.count("GET") == 1
    assert [status.run for status in client.runs()] == sorted(gateway.runs)


def test_a_run_can_be_cancelled(gateway: TinyGateway, client: Client) -> None:
    run = client.open_run()
    assert run.cancel().state == "ended"
    assert client.cancel(client.open_run().id).state == "ended"


@pytest.mark.parametrize("run", ["0000000000000000", "../nodes", ""])
def test_an_unknown_run_is_not_found(client: Client, run: str) -> None:
    with pytest.raises(RunNotFound) as refused:
        client.run(run).status()
    assert refused.value.exit_code == 2


def test_own_questions_may_mix_definitions_and_questions() -> None:
    definition = {
        "name": "first",
        "title": "First",
        "from": "transactions",
        "measure": {"purchases": "count(*)"},
        "columns": ["purchases"],
    }
    (second,) = read_json([{**definition, "name": "second"}])
    assert [question.name for question in own_questions([definition, second])] == ["first", "second"]

"""`kopi serve` and `kopi submit` as real processes: many clients, and killed clients and services."""

import json
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import ANSWER_SECONDS, ENVIRONMENT, KOPI, TIDY_SECONDS, Service, until

from kopitiam.questions.layout import LAYOUT
from kopitiam.synthetic import generate

EXAMPLES = Path(__file__).parents[2] / "examples" / "questions.toml"
BEN_ASKS = ("--ask", "best_day_of_each_store", "--ask", "4")
CONNECTIONS = 4  # of a client: as many chunks may be under way when a process dies


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service of all tests of this module; Spark restarts only if a test needs it."""
    served = Service(tmp_path_factory.mktemp("house") / "home", ENVIRONMENT)
    yield served
    served.end()


@pytest.fixture
def service(house: Service) -> Service:
    if not house.is_alive:
        house.start()
    return house


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with enough chunks for a crash in the middle of an upload."""
    made = tmp_path_factory.mktemp("service") / "data"
    generate(made, scale=0.04, seed=3)
    return made


def submit(service: Service, folder: Path, *flags: object) -> subprocess.Popen[str]:
    argv = [KOPI, "submit", folder, "--server", service.url, *map(str, flags)]
    scratch = {"TMPDIR": str(service.home.parent)}  # a killed client cannot tidy up
    return subprocess.Popen(
        argv, env=service.environment | scratch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_of(client: subprocess.Popen[str]) -> str:
    """Return the run id that a client prints first, so that its upload can be resumed."""
    assert client.stderr is not None
    found = re.search(r"run ([a-z0-9]{16,32})", client.stderr.readline())
    assert found
    return found.group(1)


@pytest.mark.long
def test_eight_clients_at_once_each_get_their_own_exact_answers(
    service: Service, tmp_path: Path, is_verified: Callable[[Path, Path], bool]
) -> None:
    flags = [("--top", 2), ("--years", 2024), ("--min-amount", "60.5"), *[()] * 5]
    clients = []
    for seed, asked in enumerate(flags):
        generate(tmp_path / f"data-{seed}", scale=0.0004, seed=seed)
        out = ("--out", tmp_path / f"answers-{seed}", "--label", f"branch {seed}")
        clients.append(submit(service, tmp_path / f"data-{seed}", *out, *asked))
    for seed, client in enumerate(clients):
        _, complaints = client.communicate(timeout=ANSWER_SECONDS)
        assert client.returncode == 0, complaints
        assert is_verified(tmp_path / f"data-{seed}", tmp_path / f"answers-{seed}")
    answers = {(tmp_path / f"answers-{seed}/results_query_1.csv").read_bytes() for seed in range(len(flags))}
    assert len(answers) == len(flags)
    until(lambda: not list((service.home / "landing").rglob("*.parquet")), TIDY_SECONDS)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in service.home.rglob("*")}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}  # also what Spark wrote
    assert stat.S_IMODE(service.home.stat().st_mode) == 0o700
    mask = os.umask(0o022)
    os.umask(mask)
    answer = tmp_path / "answers-0" / "results_query_1.csv"
    assert stat.S_IMODE(answer.stat().st_mode) == 0o666 & ~mask  # files of a person are as that person likes


@pytest.mark.long
def test_a_service_killed_in_the_middle_of_an_upload_loses_nothing(
    service: Service, folder: Path, tmp_path: Path, is_verified: Callable[[Path, Path], bool]
) -> None:
    client = submit(service, folder, "--out", tmp_path / "answers")
    run = run_of(client)
    until(lambda: service.durable_chunks(run) >= 4, ANSWER_SECONDS)
    service.kill()
    service.start()
    _, complaints = client.communicate(timeout=ANSWER_SECONDS)
    assert client.returncode == 0, complaints
    assert is_verified(folder, tmp_path / "answers")
    assert service.outcomes("same") <= CONNECTIONS
    assert service.outcomes("stored") <= service.expected_chunks(run) - 4


@pytest.mark.long
def test_an_analysis_by_a_running_service_prints_and_writes_the_same(
    service: Service, analyze_tiny: Callable[..., Any], tiny_analyzed: Any, tmp_path: Path
) -> None:
    broken = tmp_path / "bin" / "java"  # Spark cannot start with it
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.2"\n')
    remote = analyze_tiny("--server", service.url, env=ENVIRONMENT | {"JAVA_HOME": str(tmp_path)})
    assert remote.run.code == 0, remote.run.stderr
    assert remote.contents() == tiny_analyzed.contents()
    assert remote.summary() == tiny_analyzed.summary()

    def printed(analyzed: Any) -> str:
        text = analyzed.run.stdout.replace(str(analyzed.out), "OUT")
        return re.sub(r"[\d.]+ s$", "SECONDS", text, flags=re.MULTILINE)

    assert printed(remote) == printed(tiny_analyzed)


def test_a_client_killed_in_the_middle_resumes_with_the_rest_only(
    service: Service, folder: Path, tmp_path: Path, is_verified: Callable[[Path, Path], bool]
) -> None:
    before = {outcome: service.outcomes(outcome) for outcome in ("stored", "same")}
    client = submit(service, folder)
    run = run_of(client)
    until(lambda: service.durable_chunks(run) >= 4, ANSWER_SECONDS)
    client.kill()
    client.communicate()
    assert service.status(run)["state"] == "open"
    resumed = submit(service, folder, "--resume", run, "--out", tmp_path / "answers")
    _, complaints = resumed.communicate(timeout=ANSWER_SECONDS)
    assert resumed.returncode == 0, complaints
    assert is_verified(folder, tmp_path / "answers")
    assert service.outcomes("stored") - before["stored"] == service.expected_chunks(run)
    assert service.outcomes("same") - before["same"] <= CONNECTIONS


@pytest.mark.long
def test_two_clients_with_their_own_questions_outlive_a_killed_client_and_a_killed_service(
    service: Service, folder: Path, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    """Each asks for other tables and columns, so that their chunks differ though their files are the same."""
    anna_out, ben_out = tmp_path / "anna", tmp_path / "ben"
    anna = submit(service, folder, "--questions", EXAMPLES, "--out", anna_out)
    ben = submit(service, folder, "--questions", EXAMPLES, *BEN_ASKS, "--top", 5, "--out", ben_out)
    run, bens_run = run_of(anna), run_of(ben)
    until(lambda: service.durable_chunks(run) >= 4 and service.durable_chunks(bens_run) >= 4, ANSWER_SECONDS)
    anna.kill()
    anna.communicate()
    service.kill()
    service.start()
    resumed = submit(service, folder, "--resume", run, "--out", anna_out)
    for client in (resumed, ben):
        _, complaints = client.communicate(timeout=ANSWER_SECONDS)
        assert client.returncode == 0, complaints
    tables = {name: list(service.status(name)["tables"]) for name in (run, bens_run)}
    assert set(LAYOUT) - set(tables[run]) == {"vouchers"}  # only their ids are asked about
    assert tables[bens_run] == ["stores", "users", "transactions"]
    for out, answers in ((anna_out, 12), (ben_out, 2)):
        checked = kopi("verify", folder, out)
        assert (checked.code, checked.stdout.count(": equal")) == (0, answers), checked.stdout


@pytest.mark.long
def test_a_service_stopped_while_answering_continues_the_run_after_a_restart(
    service: Service, folder: Path, tmp_path: Path, is_verified: Callable[[Path, Path], bool]
) -> None:
    client = submit(service, folder, "--no-wait", "--json")
    stdout, complaints = client.communicate(timeout=ANSWER_SECONDS)
    assert client.returncode == 0, complaints
    run = json.loads(stdout)["run"]
    until(lambda: service.status(run)["state"] in ("final", "done"), ANSWER_SECONDS)
    assert service.stop() == 0
    assert "Traceback" not in service.log.read_text(encoding="utf-8")
    service.start()
    waiting = submit(service, folder, "--resume", run, "--out", tmp_path / "answers")
    _, complaints = waiting.communicate(timeout=ANSWER_SECONDS)
    assert waiting.returncode == 0, complaints
    assert is_verified(folder, tmp_path / "answers")
    assert len(list((service.home / "results").glob(f"run={run}/attempt=*"))) == 1


@pytest.mark.long
def test_commands_list_show_download_and_cancel_a_run(
    service: Service, tiny_folder: Path, tmp_path: Path, kopi: Callable[..., Any], is_verified: Any
) -> None:
    at = ("--server", service.url)
    submitted = kopi("submit", tiny_folder, *at, "--label", "tiny", "--json")
    assert submitted.code == 0, submitted.stderr
    run = json.loads(submitted.stdout)["run"]

    status = json.loads(kopi("status", run, *at, "--json").stdout)
    assert (status["run"], status["label"], status["state"], status["error"]) == (run, "tiny", "done", None)
    assert all(table["sealed"] for table in status["tables"].values())
    assert (status["rejected"], status["unmatched"]) == (0, 0)
    listed = {found["run"]: found["label"] for found in json.loads(kopi("runs", *at, "--json").stdout)}
    assert [name for name, label in listed.items() if label == "tiny"] == [run]
    assert kopi("results", run, *at, "--out", tmp_path / "answers").code == 0
    assert is_verified(tiny_folder, tmp_path / "answers")

    opened = httpx.post(f"{service.url}/api/v1/runs", json={"label": "abandoned"}).json()["run"]
    assert kopi("results", opened, *at).code == 1
    assert kopi("cancel", opened, *at).code == 0
    assert json.loads(kopi("status", opened, *at, "--json").stdout)["state"] == "ended"
    assert kopi("status", "0123456789abcdef", *at).code == 2
    assert kopi("status", run, "--server", "http://127.0.0.1:9", "--patience", "0").code == 3


def test_a_second_service_on_the_same_home_is_refused(service: Service) -> None:
    second = subprocess.run(
        [KOPI, "serve", "--home", service.home, "--port", "0"],
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=False,
    )
    assert second.returncode == 2
    assert "another kopi serve or a fleet uses this home" in second.stderr


@pytest.mark.long
def test_the_log_of_spark_is_bounded(service: Service) -> None:
    log = service.home / "scratch" / "spark.log"
    until(log.exists, ANSWER_SECONDS)
    with log.open("ab") as spark:  # which appends too
        spark.write(b"a line of Spark\n" * (17 << 16))
    until(lambda: log.stat().st_size < 16 << 20, TIDY_SECONDS)
    assert log.with_name("spark.log.1").stat().st_size >= 17 << 20

"""The process of Spark dies or hangs under `kopi serve`, or cannot work under `kopi analyze`: runs that kill
it fail after three attempts with the reason, and all others go on.
"""

import functools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from sales import FEW, FolderClient, Sales, make_sales
from services import ANSWER_SECONDS, SMALL_BATCHES, Service, until

from kopitiam.registry.registry import connect_registry
from kopitiam.verification import verify

CHUNK_ROWS = 200
TIMEOUT_SECONDS = 8
SETTINGS = SMALL_BATCHES | {
    "KOPI_GATEWAY__LEASE_SECONDS": "1200",
    "KOPI_MONITOR__TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
    "KOPI_MONITOR__HEARTBEAT_SECONDS": "1",
}
STUCK_SECONDS = 60


@pytest.fixture
def service(tmp_path: Path, environment: dict[str, str]) -> Iterator[Service]:
    served = Service(tmp_path / "service" / "home", environment | SETTINGS)
    yield served
    served.end()


@pytest.fixture
def sales(tmp_path: Path) -> Sales:
    return make_sales(tmp_path / "sales", 5, FEW)


def engines(service: Service) -> list[psutil.Process]:
    return [process for process in service.processes() if "java" in process.name()]


def readiness(service: Service) -> tuple[int, str]:
    answer = service.http.get("/readyz")
    return answer.status_code, answer.text


def pipeline_alarm(service: Service) -> str | None:
    nodes = service.http.get("/api/v1/nodes").json()
    return next(node["alarm"] for node in nodes if node["kind"] == "pipeline")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_final_step_that_kills_its_engine_fails_after_three_attempts_and_the_service_goes_on(
    service: Service, sales: Sales, tmp_path: Path
) -> None:
    service.start()
    assert service.process is not None
    pid = service.process.pid
    with (
        closing(FolderClient(service)) as client,
        closing(connect_registry("sqlite", service.home)) as registry,
    ):
        guilty = client.send(sales, CHUNK_ROWS, "guilty")

        def attempts() -> int:
            return len(registry.attempts([guilty], "final").get(guilty, []))

        for attempt in range(1, 4):
            until(functools.partial(lambda nth: attempts() == nth, attempt), ANSWER_SECONDS)
            for engine in engines(service):
                engine.kill()
            until(lambda: readiness(service)[0] == 503, ANSWER_SECONDS)
            assert "Spark" in readiness(service)[1]
            assert str(service.home) not in readiness(service)[1]
            until(lambda: pipeline_alarm(service), ANSWER_SECONDS)
        until(lambda: service.status(guilty)["state"] == "failed", ANSWER_SECONDS)
        reason = service.status(guilty)["error"]
        assert reason.startswith("the final step was tried three times and ended badly each time; the last ")
        assert "Spark's process died" in reason
        assert str(service.home) not in reason
        assert len(list((service.home / "logs").glob("spark-serve-*.log"))) == 3

        other = client.send(sales, CHUNK_ROWS, "innocent")
        client.fetch(other, tmp_path / "answers")
        assert verify(sales.folder, tmp_path / "answers").differences == ()
        until(lambda: readiness(service) == (200, "ready\n"), ANSWER_SECONDS)
        until(lambda: pipeline_alarm(service) is None, ANSWER_SECONDS)

        (engine,) = engines(service)
        engine.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        frozen = client.send(sales, CHUNK_ROWS, "frozen")
        until(lambda: readiness(service)[0] == 503, ANSWER_SECONDS)
        assert time.monotonic() - begun > TIMEOUT_SECONDS / 2  # one that is only slow is left alone
        client.fetch(frozen, tmp_path / "answers-2")
        assert verify(sales.folder, tmp_path / "answers-2").differences == ()
        assert not engine.is_running()
    assert service.process.pid == pid
    assert service.is_alive
    assert service.stop() == 0


@pytest.mark.long
def test_analyze_ends_with_the_reason_if_spark_cannot_work(
    kopi, sales: Sales, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Hadoop's file system calls `chmod`."""
    path = tmp_path / "path"
    path.mkdir()
    for folder in environment["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if folder else ():
            if program.name != "chmod" and not (path / program.name).is_symlink():
                (path / program.name).symlink_to(program)
    begun = time.monotonic()
    done = kopi(
        "analyze", sales.folder, env=environment | {"PATH": str(path), "KOPI_HOME": str(tmp_path / "home")}
    )
    assert time.monotonic() - begun < STUCK_SECONDS
    assert done.code == 1, done.stderr
    assert "the stream failed 5 times in a row" in done.stderr
    assert "chmod" in done.stderr
    assert "Traceback" not in done.stderr
    assert f"Spark's log is kept in {tmp_path / 'home' / 'logs'}" in done.stderr

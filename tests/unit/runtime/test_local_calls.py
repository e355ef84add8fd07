"""The calls of `kopi analyze` in its own process: the same chunks as over HTTP, without a web framework."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from catalog_tables import TABLES
from kopitiam.bus.memory import MemoryBus
from kopitiam.client.client import Client
from kopitiam.client.folder import open_folder
from kopitiam.client.upload import UploadOptions, upload
from kopitiam.contracts.errors import BadRows, RunNotFound, Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.messages import END_TOPICS, Message
from kopitiam.contracts.runs import RunState
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.registry import connect_registry, create_temporary_registry
from kopitiam.runtime.local_calls import LocalCalls
from kopitiam.storage.local import TemporaryStorage
from tiny_gateway import serving
from waiting import eventually

SHARDS = 2
BAD_STORE = "x,Nowhere\n"
MODULES = (
    "kopitiam.cli.analyze kopitiam.cli.delivery kopitiam.runtime.local_calls kopitiam.runtime.processing"
)
WEB = {"alembic", "fastapi", "httpx", "prometheus_client", "starlette", "uvicorn"}


@pytest.fixture
def bus() -> Iterator[MemoryBus]:
    with closing(MemoryBus()) as bus:
        yield bus


@pytest.fixture
def calls(tmp_path: Path, bus: MemoryBus) -> Iterator[LocalCalls]:
    home = tmp_path / "home"
    with closing(create_temporary_registry(home)) as registry:
        yield LocalCalls(registry, TemporaryStorage(home), bus, SHARDS)


@pytest.fixture
def run(calls: LocalCalls) -> str:
    questions = QuestionSet.of_catalog().to_dict()
    opened = calls.registry.open_run(questions, "", "", idempotency_key=None, lease_seconds=60, shards=SHARDS)
    return opened.run.run


@pytest.fixture
def exports(sound_folder: Path) -> Path:
    with (sound_folder / "stores" / "stores.csv").open("a") as stores:
        stores.write(BAD_STORE)
    return sound_folder


def send(calls: LocalCalls, run: str, exports: Path, *, is_strict: bool = False) -> None:
    upload(calls, open_folder(exports, TABLES), run, UploadOptions(is_strict, chunk_rows=1))


def test_chunks_and_rejected_rows_are_those_that_a_gateway_receives(
    calls: LocalCalls, run: str, exports: Path, tmp_path: Path
) -> None:
    send(calls, run, exports)
    with serving() as gateway, Client(gateway.url) as client:
        other = client.open_run()
        upload(other._calls, open_folder(exports, TABLES), other.id, UploadOptions(chunk_rows=1))
        received = gateway.runs[other.id]
    for name, table in received.tables.items():
        records = calls.registry.chunks(run, name)
        assert [record.number for record in records] == sorted(table.chunks)
        for record in records:
            stored = calls.storage.path(KEYS.chunk(run, name, record.shard, record.number)).read_bytes()
            assert stored == table.chunks[record.number]
            assert (record.digest, record.rows) == (hashlib.sha256(stored).hexdigest(), 1)
    calls.fetch_rejected(run, tmp_path / "rejected.csv")
    assert (tmp_path / "rejected.csv").read_bytes() == received.tables["stores"].rejected_csv
    assert calls.status(run).state == RunState.SEALED
    assert calls.status(run).rejected == 1


def test_each_end_is_announced_to_the_pipeline(
    calls: LocalCalls, run: str, sound_folder: Path, bus: MemoryBus
) -> None:
    messages: list[Message] = []
    bus.subscribe(END_TOPICS, messages.append)
    send(calls, run, sound_folder)
    eventually(lambda: len(messages) == len(TABLES))
    assert {message.run for message in messages} == {run}  # type: ignore[union-attr]


def test_another_process_reads_the_chunk_log(calls: LocalCalls, run: str, sound_folder: Path) -> None:
    send(calls, run, sound_folder)
    with closing(connect_registry("sqlite", calls.storage.path(KEYS.landing).parent)) as other:
        assert other.last_sequence(0) == calls.registry.last_sequence(0) > 0


def test_a_bad_row_in_strict_mode_ends_the_run(calls: LocalCalls, run: str, exports: Path) -> None:
    with pytest.raises(BadRows, match=r"^bad row: stores/stores\.csv, line"):
        send(calls, run, exports, is_strict=True)
    assert calls.status(run).state == RunState.ENDED


def test_a_full_disk_is_unavailable(
    calls: LocalCalls, run: str, sound_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out_of_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TemporaryStorage, "replace", run_out_of_room)
    with pytest.raises(Unavailable, match=r"^chunks cannot be written: No space left on device$"):
        send(calls, run, sound_folder)


def test_answers_and_rejected_rows_that_do_not_exist_are_not_found(calls: LocalCalls, run: str) -> None:
    for fetch in (
        lambda path: calls.fetch_result(run, "3.csv", path),
        lambda path: calls.fetch_rejected(run, path),
    ):
        with pytest.raises(RunNotFound):
            fetch(Path("nowhere"))


@pytest.mark.slow
def test_an_analysis_loads_no_web_framework() -> None:
    script = f"import json, sys, {MODULES.replace(' ', ', ')}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert WEB.isdisjoint(json.loads(done.stdout))

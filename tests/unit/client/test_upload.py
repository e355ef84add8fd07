"""Uploads over real sockets to a failing gateway: all chunks arrive, and none is sent needlessly."""

import csv
import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import kopitiam.client.upload as module
from catalog_tables import TABLES
from kopitiam.client.calls import Calls
from kopitiam.client.chunks import Chunk, rejected_parts
from kopitiam.client.folder import open_folder
from kopitiam.client.http import Transport
from kopitiam.client.senders import MAX_QUEUED, heartbeat
from kopitiam.client.upload import TableProgress, UploadOptions, upload
from kopitiam.contracts.api import OpenRun
from kopitiam.contracts.errors import BadRows, InputError, RunOver, ServiceError, Unavailable
from tiny_gateway import FIRST_RUN, FakeTime, Fault, TinyGateway, TinyRun, serving
from waiting import PATIENCE_SECONDS, eventually, stays

CHUNK_ROWS = 2
SALES = 20
CHUNKS = SALES // CHUNK_ROWS
CONNECTIONS = 3
ROWS = [f"t{number},1,7,{number}.5,2024-01-01 10:00:00" for number in range(SALES)]


@pytest.fixture
def gateway() -> Iterator[TinyGateway]:
    with serving() as gateway:
        yield gateway


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def calls(gateway: TinyGateway, time: FakeTime) -> Iterator[Calls]:
    transport = Transport(gateway.url, connections=CONNECTIONS, sleep=time.sleep, clock=time.clock)
    yield Calls(transport)
    transport.close()


@pytest.fixture
def run(gateway: TinyGateway, calls: Calls) -> TinyRun:
    calls.open_run(OpenRun(idempotency_key="k"))
    return gateway.runs[FIRST_RUN]


@pytest.fixture
def exports(sound_folder: Path) -> Path:
    """Twenty sales: ten chunks of two."""
    write_sales(sound_folder, ROWS)
    return sound_folder


def write_sales(folder: Path, rows: list[str]) -> None:
    header = "transaction_id,store_id,user_id,final_amount,created_at"
    (folder / "transactions" / "transactions_202401.csv").write_text("\n".join([header, *rows, ""]))


@pytest.fixture
def send(calls: Calls, run: TinyRun, exports: Path) -> Callable[..., None]:
    def send(**options: object) -> None:
        upload(calls, open_folder(exports, TABLES), run.run, UploadOptions(chunk_rows=CHUNK_ROWS, **options))  # type: ignore[arg-type]

    return send


def assert_all_arrived(run: TinyRun) -> None:
    sales = run.tables["transactions"]
    assert sales.read()["transaction_id"].to_pylist() == [f"t{number}" for number in range(SALES)]
    assert sorted(sales.chunks) == list(range(CHUNKS))
    assert {name: table.rows for name, table in run.tables.items()} == {
        "stores": 2,
        "menu_items": 1,
        "users": 1,
        "transactions": SALES,
        "transaction_items": 1,
    }
    assert all(table.end for table in run.tables.values())
    assert run.state != "open"


def test_everything_arrives_exactly_once(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None]
) -> None:
    send()
    assert_all_arrived(run)
    assert gateway.puts("transactions") == list(range(CHUNKS))
    assert gateway.count("POST .*/end") == len(TABLES)
    assert gateway.count("PUT .*/rejected") == 0


@pytest.mark.parametrize(
    "fault",
    [
        Fault("PUT .*/chunks/", times=6),
        Fault("PUT .*/chunks/", times=6, is_stored=True),
        Fault("PUT .*/chunks/", times=6, status=503, retry_after=2),
        Fault("PUT .*/chunks/", times=6, status=429, retry_after=1),
        Fault("POST .*/end", times=6, is_stored=True),
        Fault("GET .*/chunks", times=4),
    ],
    ids=["dropped mid-body", "answer lost", "503", "429", "END's answer lost", "asking fails"],
)
def test_temporary_failures_change_nothing(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None], fault: Fault
) -> None:
    gateway.faults.append(replace(fault))
    send()
    assert gateway.faults[0].times == 0
    assert_all_arrived(run)


def test_a_gateway_that_restarts_is_waited_for(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None], time: FakeTime
) -> None:
    lock = threading.Lock()
    state = {"is_up": True}

    def fall(_seen: TableProgress) -> None:
        with lock:
            if state["is_up"] and len(run.tables["transactions"].chunks) >= 3 and not time.slept:
                state["is_up"] = False
                gateway.stop()

    def rise() -> None:
        with lock:
            if not state["is_up"] and len(time.slept) >= 3 * CONNECTIONS:
                state["is_up"] = True
                gateway.start()

    time.on_sleep = rise
    send(progress=fall)
    assert len(time.slept) >= 3
    assert_all_arrived(run)


def test_a_gateway_that_stays_down_is_unavailable(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None], time: FakeTime
) -> None:
    gateway.faults.append(Fault("PUT .*/transactions/chunks/", times=10_000))
    with pytest.raises(Unavailable):
        send()
    assert run.state == "open"  # it can be resumed
    assert run.tables["transactions"].end is None


def test_a_resumed_upload_sends_only_the_rest(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None]
) -> None:
    gateway.faults.append(Fault("PUT .*/transactions/chunks/[2468]", times=10_000, status=410, error="over"))
    with pytest.raises(RunOver):
        send()
    already = set(run.tables["transactions"].chunks)
    assert already
    gateway.faults.clear()
    gateway.calls.clear()
    seen: list[TableProgress] = []
    send(progress=seen.append)
    assert gateway.puts("transactions") == sorted(set(range(CHUNKS)) - already)
    assert gateway.puts("users") == gateway.puts("stores") == []
    assert_all_arrived(run)
    last = [progress for progress in seen if progress.table == "transactions"][-1]
    assert (last.chunks, last.rows, last.resumed) == (CHUNKS, SALES, len(already))


def test_nothing_is_sent_to_a_run_that_has_everything(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None]
) -> None:
    send()
    gateway.calls.clear()
    send()
    assert gateway.count("PUT|POST") == 0


@pytest.mark.parametrize(
    ("rows", "chunk"),
    [
        (["other,1,7,1,2024-01-01 10:00:00", *ROWS[1:]], 0),
        (ROWS[:4], 2),
        ([*ROWS, "new,1,7,1,2024-01-01 10:00:00"], CHUNKS),
    ],
    ids=["other rows", "fewer rows", "more rows"],
)
def test_a_folder_that_has_changed_is_refused(
    gateway: TinyGateway, exports: Path, send: Callable[..., None], rows: list[str], chunk: int
) -> None:
    gateway.faults.append(Fault("POST .*/transaction_items/end", status=410, error="over"))
    with pytest.raises(RunOver):
        send()
    write_sales(exports, rows)
    # The table has had its END: a new chunk is answered as a real gateway would.
    gateway.faults.append(Fault(f"PUT .*/transactions/chunks/{CHUNKS}", status=409, error="sealed"))
    said = f"changed since run {FIRST_RUN} began: transactions chunk {chunk} differs"
    with pytest.raises(InputError, match=said):
        send()


def test_other_bytes_under_a_number_mean_that_the_folder_has_changed(
    gateway: TinyGateway, send: Callable[..., None]
) -> None:
    gateway.faults.append(Fault("PUT .*/transactions/chunks/4", status=409, error="conflict"))
    with pytest.raises(InputError, match="transactions chunk 4 differs"):
        send()


def test_only_chunks_that_end_finds_missing_are_sent_again(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None]
) -> None:
    def lose(seen: TableProgress) -> None:
        if seen.table == "transactions" and seen.chunks == CHUNKS and not seen.is_sealed:
            for number in (0, 3, 4):
                run.tables["transactions"].chunks.pop(number, None)

    send(progress=lose)
    assert_all_arrived(run)
    assert gateway.puts("transactions") == sorted([*range(CHUNKS), 0, 3, 4])
    assert gateway.count("POST .*/transactions/end") == 2


def test_a_gateway_that_keeps_losing_chunks_is_a_service_error(
    gateway: TinyGateway, send: Callable[..., None]
) -> None:
    body = b'{"error": "incomplete", "message": "chunks are missing", "missing": [[1, 2]]}'
    gateway.faults.append(Fault("POST .*/transactions/end", times=99, status=409, body=body))
    with pytest.raises(ServiceError, match="still not complete"):
        send()


def test_an_end_repeated_after_the_run_is_done_is_no_failure(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None]
) -> None:
    gateway.faults.append(Fault("POST .*/transaction_items/end", is_stored=True))
    original = gateway.fault_for

    def fault_for(call: str) -> Fault | None:
        if run.state == "sealed":
            run.state = "done"  # between the END whose answer is lost and its repetition
        return original(call)

    gateway.fault_for = fault_for  # type: ignore[method-assign]
    send()
    assert gateway.count("POST .*/transaction_items/end") == 2
    assert_all_arrived(run)


def test_a_run_that_was_ended_meanwhile_is_over(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None]
) -> None:
    def end(seen: TableProgress) -> None:
        if seen.table == "transactions":
            run.state = "ended"

    with pytest.raises(RunOver):
        send(progress=end)
    with pytest.raises(RunOver):
        send()


def test_rejected_rows_arrive_table_by_table(
    gateway: TinyGateway, run: TinyRun, exports: Path, send: Callable[..., None]
) -> None:
    write_sales(exports, ["a,1,7,80,2024-01-01 10:00:00", 'b,1,7,"x\ny",2024-01-01 10:00:00', "c,1"])
    send()
    rows = list(csv.DictReader(io.StringIO(run.tables["transactions"].rejected_csv.decode(), newline="")))
    assert [(row["table"], row["file"], row["line"]) for row in rows] == [
        ("transactions", "transactions/transactions_202401.csv", "3"),
        ("transactions", "transactions/transactions_202401.csv", "5"),
    ]
    end = run.tables["transactions"].end
    assert end is not None
    assert (end.chunks, end.rows, end.rejected) == (1, 1, 2)
    assert gateway.count("PUT .*/rejected") == 1


def test_however_many_rows_are_rejected_all_of_them_arrive(
    gateway: TinyGateway,
    run: TinyRun,
    exports: Path,
    send: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "rejected_parts", partial(rejected_parts, most_bytes=500))
    write_sales(exports, [f'sale-{number},1,7,"x\ny",2024-01-01 10:00:00' for number in range(40)])
    send()
    rows = list(csv.DictReader(io.StringIO(run.tables["transactions"].rejected_csv.decode(), newline="")))
    assert [row["row"].partition(",")[0] for row in rows] == [f"sale-{number}" for number in range(40)]
    assert gateway.count("PUT .*/rejected") > 5


def test_a_table_without_rows_ends_with_no_chunks(
    run: TinyRun, exports: Path, gateway: TinyGateway, send: Callable[..., None]
) -> None:
    write_sales(exports, [])
    send()
    end = run.tables["transactions"].end
    assert end is not None
    assert (end.chunks, end.rows, end.rejected) == (0, 0, 0)
    assert gateway.puts("transactions") == []


def test_with_strict_a_bad_row_ends_the_run(
    gateway: TinyGateway, run: TinyRun, exports: Path, send: Callable[..., None]
) -> None:
    write_sales(exports, ["a,1,7,much,2024-01-01 10:00:00"])
    with pytest.raises(BadRows, match=r"transactions_202401.csv, line 2: final_amount 'much'"):
        send(is_strict=True)
    assert run.state == "ended"
    assert run.tables["transactions"].end is None
    assert gateway.count("DELETE") == 1


def test_with_strict_a_sound_folder_is_sent_as_usual(run: TinyRun, send: Callable[..., None]) -> None:
    send(is_strict=True)
    assert_all_arrived(run)


def test_only_a_few_chunks_are_in_memory(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    original = module.read_chunks

    def counted(*arguments: object, **options: object) -> Iterator[Chunk]:
        for chunk in original(*arguments, **options):  # type: ignore[arg-type]
            if chunk.table.name == "transactions":
                made.append(chunk.number)
            yield chunk

    def in_memory() -> int:
        return len(made) - len(run.tables["transactions"].chunks)

    monkeypatch.setattr(module, "read_chunks", counted)
    bound = CONNECTIONS + MAX_QUEUED + 1  # sent, waiting, and in the hands of the reader
    most = []

    def watch(seen: TableProgress) -> None:
        if seen.table == "transactions":
            most.append(in_memory())
        if seen.table == "users" and seen.is_sealed:
            gateway.open_gate.clear()

    sender = threading.Thread(target=send, kwargs={"progress": watch}, daemon=True)
    sender.start()
    eventually(lambda: in_memory() == bound)
    assert stays(lambda: in_memory() == bound)
    gateway.open_gate.set()
    sender.join(PATIENCE_SECONDS)
    assert max(most) <= bound
    assert_all_arrived(run)


def test_chunks_are_sent_on_several_connections_at_once(
    gateway: TinyGateway, run: TinyRun, send: Callable[..., None]
) -> None:
    def watch(seen: TableProgress) -> None:
        if seen.table == "users" and seen.is_sealed:
            gateway.open_gate.clear()

    sender = threading.Thread(target=send, kwargs={"progress": watch}, daemon=True)
    sender.start()
    eventually(lambda: len(gateway.puts("transactions")) == CONNECTIONS)
    assert run.tables["transactions"].chunks == {}
    gateway.open_gate.set()
    sender.join(PATIENCE_SECONDS)
    assert_all_arrived(run)


def test_progress_ends_at_the_size_of_the_files(
    run: TinyRun, exports: Path, send: Callable[..., None]
) -> None:
    seen: dict[str, TableProgress] = {}
    send(progress=lambda progress: seen.update({progress.table: progress}))
    size = (exports / "transactions" / "transactions_202401.csv").stat().st_size
    assert seen["transactions"] == TableProgress("transactions", size, size, CHUNKS, SALES, 0, True)
    assert list(seen) == list(TABLES)


def test_all_threads_end_with_the_upload(send: Callable[..., None], gateway: TinyGateway) -> None:
    gateway.faults.append(Fault("PUT .*/transactions/chunks/5", status=410, error="over"))
    before = set(threading.enumerate())
    with pytest.raises(RunOver):
        send()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not [name for name in left if "process_request_thread" not in name]  # those are the gateway's


def test_the_heartbeat_goes_on_until_the_upload_ends() -> None:
    beats: list[None] = []
    enough = threading.Event()

    def beat() -> None:
        beats.append(None)
        if len(beats) >= 3:
            enough.set()
        raise Unavailable("a gateway that is away is no reason to stop")

    with heartbeat(beat, every_seconds=0.001):
        assert enough.wait(PATIENCE_SECONDS)
    count = len(beats)
    assert stays(lambda: len(beats) == count)

"""Hostile bodies: corrupt, decompressing to gigabytes, endless. The gateway survives within its limits."""

import base64
import itertools
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gateway_client import GatewayClient, RawUpload, eventually, parquet_file, parquet_of, rows_of

from catalog_tables import TABLES
from forged_footers import forged, size_of_row_groups, statistics_of
from kopitiam.contracts.api import CSV
from kopitiam.gateway import examination
from kopitiam.landing.chunks import encode

MOST_MEGABYTES = 600
LARGE_ROWS, MANY = 500_000, 24  # rows of a large body, and how many of them


def peak_memory(process: psutil.Process) -> dict[int, float]:
    """Return the peak memory (VmHWM) of the process and each of its children, in MB."""
    peaks = {}
    for member in (process, *process.children(recursive=True)):
        with suppress(
            OSError, ValueError, IndexError, psutil.NoSuchProcess
        ):  # one that has ended has no peak
            status = Path(f"/proc/{member.pid}/status").read_text()
            peaks[member.pid] = int(status.partition("VmHWM:")[2].split()[0]) / 1e3
    return peaks


@contextmanager
def memory_watched(process: psutil.Process) -> Iterator[Callable[[], dict[int, float]]]:
    """Give the memory peaks of the process and of all children it has had so far."""
    peaks: dict[int, float] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            peaks.update(peak_memory(process))  # the kernel keeps the peak, so no poll can miss it

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield lambda: peaks | peak_memory(process)
    finally:
        stop.set()
        watcher.join()


def large_body(seed: int) -> bytes:
    """Valid rows of more than twelve megabytes: their ids hardly compress."""
    schema = TABLES["transactions"].schema
    letters = base64.b64encode(random.Random(seed).randbytes(27 * LARGE_ROWS)).decode()
    ids = pa.array([letters[at : at + 36] for at in range(0, len(letters), 36)])
    [row] = rows_of("transactions", 1).to_pylist()
    columns = [pa.repeat(pa.scalar(row[field.name], field.type), LARGE_ROWS) for field in schema]
    return encode(TABLES["transactions"], pa.Table.from_arrays([ids, *columns[1:]], schema=schema))


def honest_bomb() -> bytes:
    """More than a gigabyte of text, compressed to almost nothing."""
    rows = pa.table(
        {"item_id": pa.array(range(16_384)), "item_name": pa.array(["a" * 2000] * 16_384)},
        TABLES["menu_items"].schema,
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(40):
            writer.write_table(rows)
    return bytes(sink.getvalue())


def dictionary_bomb(text: str) -> bytes:
    """A million equal rows: the file holds the value once, and does not give its size in memory."""
    count = 1_000_000
    names = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))
    rows = pa.Table.from_arrays([pa.array(range(count)), names], ["item_id", "item_name"])
    return parquet_file(rows, store_schema=False, compression="zstd", use_dictionary=True)


BOMBS = {
    "honest": honest_bomb,
    "a megabyte a million times": lambda: dictionary_bomb("x" * (1 << 20)),
    "two kilobytes a million times": lambda: dictionary_bomb("x" * 2048),
}


@pytest.mark.long
def test_bombs_are_refused_within_bounded_memory(start) -> None:
    process = start()
    client = process.connect()
    run = client.open_run()
    with memory_watched(psutil.Process(process.popen.pid)) as peak:
        for name, bomb in BOMBS.items():
            body = bomb()
            assert len(body) < 16 << 20, name
            response = client.put(run, 0, body, "menu_items")
            assert (response.status_code, response.json()["error"]) == (422, "unsound"), name
            assert client.put(run, 1).status_code in (200, 201)
        assert max(peak().values()) < MOST_MEGABYTES
    assert client.incoming() == []
    assert client.durable(run, "menu_items") == {}


@pytest.mark.long
def test_the_largest_sound_bodies_fit_into_the_memory_of_an_examiner(client: GatewayClient, run: str) -> None:
    limit = 64 << 20
    header = "transaction_id,store_id,user_id,final_amount,created_at\n"
    row = "{:036d},1,{},80.5,2024-01-01 10:00:00\n"
    rows = [row.format(n, n) for n in range((limit - len(header)) // len(row.format(0, 1_000_000)))]
    response = client.put(run, 0, (header + "".join(rows)).encode(), "transactions", CSV)
    assert (response.status_code, response.json()["rows"]) == (201, len(rows))
    stored = client.file(run, 0, "transactions").read_bytes()
    assert client.put(run, 1, stored, "transactions").json()["rows"] == len(rows)
    long = rows_of("stores", 60_000).set_column(1, "store_name", pa.array(["x" * 1024] * 60_000))
    assert (
        client.put(run, 2, parquet_file(long, use_dictionary=False, compression="none"), "stores").status_code
        == 201
    )


@pytest.mark.long
def test_many_large_bodies_at_once_stay_within_bounded_memory(start) -> None:
    process = start(KOPI_GATEWAY__MAX_BODIES="4", KOPI_GATEWAY__MIN_BYTES_PER_SECOND="0")
    client = process.connect()
    run = client.open_run()
    body = large_body(seed=1)
    assert len(body) > 12 << 20
    outcomes: Counter[int] = Counter()
    with memory_watched(psutil.Process(process.popen.pid)) as peak, ThreadPoolExecutor(8) as pool:
        assert client.put(run).status_code == 201
        before = sum(peak().values())
        for burst in itertools.count():
            numbers = range(8 * burst, 8 * burst + 8)
            answers = pool.map(lambda number: client.put(run, number, body, "transactions"), numbers)
            outcomes.update(answer.status_code for answer in answers)
            if outcomes[201] >= MANY:
                break
        grown = sum(peak().values()) - before
    assert set(outcomes) <= {201, 429}, "all are sound; eight come at once, and four are accepted"
    assert client.incoming() == []
    assert len(client.durable(run, "transactions")) == outcomes[201]
    assert grown < outcomes[201] * len(body) / 1e6, "the gateway and its examiners together"


def is_sound(client: GatewayClient, run: str, number: int) -> bool:
    stored = pq.read_table(client.file(run, number, "transactions"), partitioning=None)
    stored.validate(full=True)
    return stored.num_rows == 10 and stored.schema.names == TABLES["transactions"].schema.names


@pytest.mark.long
def test_parquet_with_flipped_bytes_is_refused_or_really_sound(client: GatewayClient, run: str) -> None:
    chance, sound = random.Random(7), parquet_of("transactions")
    stored = 0
    for number in range(100):
        body = bytearray(sound)
        for _ in range(chance.choice((1, 1, 2, 8))):
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        response = client.put(run, number, bytes(body), "transactions")
        assert response.status_code in (201, 422), response.text
        if response.status_code == 201:
            stored += 1
            assert is_sound(client, run, number)
        else:
            assert not client.file(run, number, "transactions").exists()
    assert stored < 100
    assert client.put(run, 1000).status_code == 201


def test_parquet_that_is_cut_or_spliced_is_refused(client: GatewayClient, run: str) -> None:
    chance, sound = random.Random(8), parquet_of("transactions")
    for number in range(40):
        cut = chance.randrange(1, len(sound))
        body = sound[:cut] if number % 2 else sound[: cut // 2] + sound[cut:]
        assert client.put(run, number, body, "transactions").status_code == 422
    assert client.put(run, 1000).status_code == 201


def test_footers_that_would_lose_rows_in_spark_are_refused(client: GatewayClient, run: str) -> None:
    sound = parquet_of("transactions")
    for number, (change, reason) in enumerate(
        (
            (statistics_of("transaction_id", max_value=b"text-1"), "transaction_id: the statistics"),
            (statistics_of("user_id", null_count=10), "user_id: the statistics"),
            (size_of_row_groups(1 << 40), "wrong size of a row group"),
        )
    ):
        response = client.put(run, number, forged(sound, change), "transactions")
        assert (response.status_code, response.json()["error"]) == (422, "unsound")
        assert reason in response.json()["message"]
    assert client.durable(run, "transactions") == {}


@pytest.mark.long
def test_a_body_that_takes_its_examiner_too_long_is_refused(serve, monkeypatch) -> None:
    endless = "lambda order: [None for _ in iter(int, 1)]"
    code = f"import kopitiam.gateway.examiner as e; e.SECONDS, e.examine = 1, {endless}; e.main()"
    with monkeypatch.context() as patched:
        patched.setattr(examination, "COMMAND", (sys.executable, "-c", code))
        client = serve().client
        run = client.open_run()
        response = client.put(run)
        assert response.status_code == 422
        assert "time" in response.json()["message"]
    assert client.put(run).status_code == 201
    assert client.incoming() == []


def test_an_examiner_that_is_killed_over_a_body_is_replaced(serve, monkeypatch) -> None:
    me = psutil.Process()
    before = set(me.children())
    deadly = "import sys, os; sys.stdin.readline(); os.kill(os.getpid(), 9)"
    with monkeypatch.context() as patched:
        patched.setattr(examination, "COMMAND", (sys.executable, "-c", deadly))
        served = serve()
        client = served.client
        run = client.open_run()
        response = client.put(run, 0)
        assert response.status_code == 422
        assert "reading it crashes" in response.json()["message"]
    for _ in range(3):  # the remaining ones die too and are replaced
        assert client.put(run, 1).status_code in (200, 201)
    assert client.incoming() == []
    served.gateway.uploads.examiners.close()
    eventually(lambda: set(me.children()) <= before)


def test_a_sound_body_survives_the_death_of_an_idle_examiner(serve) -> None:
    me = psutil.Process()
    before = set(me.children())
    client = serve().client
    run = client.open_run()
    assert client.put(run, 0).status_code == 201
    for examiner in set(me.children()) - before:
        examiner.kill()
        examiner.wait()
    for number in range(4):
        assert client.put(run, number).status_code in (200, 201)


def test_no_examiner_survives_its_gateway_even_if_it_is_busy(serve, monkeypatch) -> None:
    me = psutil.Process()
    before = set(me.children())
    endless = "import sys, time; sys.stdin.readline(); time.sleep(600)"
    monkeypatch.setattr(examination, "COMMAND", (sys.executable, "-c", endless))
    served = serve()
    run = served.client.open_run()
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(served.client.put, run, number) for number in range(4)]
        eventually(lambda: served.client.metric("kopitiam_bodies_under_way") == 4)
        eventually(lambda: len(served.client.incoming()) == 4)
        served.gateway.uploads.examiners.close()
        assert {answer.result().status_code for answer in answers} == {503}
    eventually(lambda: set(me.children()) <= before)


@pytest.mark.parametrize("size", [10**15, 2**63])
def test_a_body_with_a_huge_content_length_is_refused_at_once(client: GatewayClient, run: str, size) -> None:
    upload = RawUpload(client.url, run, size=size)
    assert upload.answer()[0] == 413
    upload.close()

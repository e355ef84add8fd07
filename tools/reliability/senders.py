"""The faults slow-senders and poison-bodies: hostile clients, beside a well-behaved one."""

import contextlib
import random
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from sales import Upload
from services import Service

from catalog_tables import TABLES
from kopitiam.contracts.api import CSV, PARQUET
from tools.reliability.measurements import Measurement, at_least, at_most, none_of
from tools.reliability.scenes import CHUNK_ROWS, Account, Calls, MemoryWatch, Session, fetch, serving

_SLOW_SENDERS, _HALF_HEADS = 16, 50
_HONEST_CALL_SECONDS = 5.0
_MOST_PYTHON_MEGABYTES, _MOST_JVM_MEGABYTES = 1000.0, 2000.0  # all processes of each kind together
_NAME_BYTES = 60 << 20


def slow_senders(session: Session) -> Iterator[Measurement]:
    """Holds connections with slow bodies and half request heads while a well-behaved client uploads a run."""
    folder, seconds = session.new_folder("slow-senders"), session.pick(60, 6)
    sales = session.sales("slow-senders", session.seed)
    with serving(folder) as service:
        upload, calls = Upload(service, folder / "sent"), Calls()
        pieces = deque((table, text) for table in TABLES for text in sales.texts(table, CHUNK_ROWS))
        with _holding(service) as held:
            time.sleep(1)  # all slow senders are connected by now
            pause = seconds / len(pieces)
            deadline = time.monotonic() + seconds
            while pieces and time.monotonic() < deadline:
                if _put(calls, upload, pieces[0]):
                    pieces.popleft()
                time.sleep(pause if calls.statuses[429] == 0 else 0.2)
            still_open = sum(map(_is_open, held))
        session.say(f"{still_open} of {len(held)} slow connections were still open after {seconds} s")
        during = Counter(calls.statuses)
        while pieces:
            if _put(calls, upload, pieces[0]):
                pieces.popleft()
            assert time.monotonic() < deadline + 120, "the honest client is not served afterwards either"
        _end(calls, upload)
        account = Account()
        answers = fetch(service, upload.run, folder / "answers")
        account.add(sales, upload.status(), answers)
    yield Measurement(
        "slow senders",
        f"{_SLOW_SENDERS} at a byte a second and {_HALF_HEADS} half heads, {seconds} s",
        session.seed,
        (
            none_of("429s to the honest client", during[429]),
            none_of("its calls that broke off", during[0]),
            at_most("longest call", calls.longest, _HONEST_CALL_SECONDS, "s"),
            *account.figures(),
        ),
    )


def _put(calls: Calls, upload: Upload, piece: tuple[str, str]) -> bool:
    """Sends the next chunk of its table; True if it is stored."""
    table, text = piece
    response = calls.make(lambda: upload.put(table, len(upload.chunks[table]), text))
    if response is None or response.status_code not in (200, 201):
        return False
    upload.chunks[table].append(response.json()["rows"])
    return True


def _end(calls: Calls, upload: Upload) -> None:
    """Sends END for all tables; `upload.chunks` holds row counts, as `_put` leaves them."""
    for table, chunks in upload.chunks.items():
        path = f"/api/v1/runs/{upload.run}/tables/{table}/end"
        figures = {"chunks": len(chunks), "rows": sum(chunks)}
        ended = calls.insist(lambda p=path, f=figures: upload.service.http.post(p, json=f))
        assert ended.status_code == 200, ended.text


@contextlib.contextmanager
def _holding(service: Service) -> Iterator[list[socket.socket]]:
    """Opens connections that send as little as they can, until the block ends."""
    place, stop = urlsplit(service.url), threading.Event()
    assert place.hostname and place.port
    slow_run = service.http.post("/api/v1/runs", json={"label": "slow"}).json()["run"]
    held = []
    for number in range(_SLOW_SENDERS):
        path = f"/api/v1/runs/{slow_run}/tables/users/chunks/{number}"
        head = f"PUT {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: {PARQUET}\r\n"
        held.append(_connect(place.hostname, place.port, f"{head}Content-Length: 100000\r\n\r\n".encode()))
    for _ in range(_HALF_HEADS):
        half = f"PUT /api/v1/runs/{slow_run}/tables/us".encode()
        held.append(_connect(place.hostname, place.port, half))

    def trickle() -> None:
        while not stop.wait(1):
            for connection in held[:_SLOW_SENDERS]:
                with contextlib.suppress(OSError):
                    connection.send(b"P")

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        yield held
    finally:
        stop.set()
        thread.join()
        for connection in held:
            connection.close()


def _connect(host: str, port: int, first: bytes) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=20)
    connection.sendall(first)
    return connection


def _is_open(connection: socket.socket) -> bool:
    """Whether the gateway has neither answered nor closed the connection."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def poison_bodies(session: Session) -> Iterator[Measurement]:
    """Sends each hostile body several times while another run is uploaded and answered."""
    folder, chance = session.new_folder("poison-bodies"), random.Random(session.seed)
    sales = session.sales("poison-bodies", session.seed + 1)
    account, refused, sent, stored = Account(), 0, 0, list[str]()
    with serving(folder) as service:
        upload = Upload(service, folder / "sent")
        poison = service.http.post("/api/v1/runs", json={"label": "poison"}).json()["run"]
        calls = Calls()
        with MemoryWatch(service) as memory:
            pieces = iter([(table, text) for table in TABLES for text in sales.texts(table, CHUNK_ROWS)])
            for name, table, media_type, make in _poisons():
                for _ in range(session.pick(3, 1)):
                    path = f"/api/v1/runs/{poison}/tables/{table}/chunks/{sent}"
                    headers, body = {"Content-Type": media_type}, make(chance)
                    response = service.http.put(path, content=body, headers=headers, timeout=120)
                    sent += 1
                    is_refused = 400 <= response.status_code < 500
                    is_set_aside = response.status_code == 201 and response.json()["rows"] == 0
                    refused += is_refused or is_set_aside
                    if not is_refused and not is_set_aside:
                        stored.append(f"{name}: {response.status_code}")
                    if piece := next(pieces, None):
                        assert _put(calls, upload, piece), piece[0]
            for piece in pieces:
                assert _put(calls, upload, piece), piece[0]
            _end(calls, upload)
            answers = fetch(service, upload.run, folder / "answers")
            is_alive = service.is_alive and service.http.get("/healthz").status_code == 200
        account.add(sales, upload.status(), answers)
    yield Measurement(
        "poison bodies",
        f"{sent} bodies of {len(_poisons())} kinds",
        session.seed,
        (
            at_least("refused with 4xx, or all rows rejected", refused, sent),
            at_least("service alive", int(is_alive), 1),
            *memory.figures(_MOST_PYTHON_MEGABYTES, _MOST_JVM_MEGABYTES),
            at_most("longest call", calls.longest, 20, "s"),
            *account.figures(),
        ),
        notes=tuple(f"neither refused nor rejected: {body}" for body in stored),
    )


Poison = tuple[str, str, str, Callable[[random.Random], bytes]]


def _poisons() -> list[Poison]:
    """Name, table, media type, and the bytes of each kind of body."""
    return [
        ("a name of 60 MB in CSV", "stores", CSV, lambda _: b"store_id,store_name\n1," + b"x" * _NAME_BYTES),
        ("a name of 60 MB in Parquet", "stores", PARQUET, lambda _: _stores(["x" * _NAME_BYTES], "none")),
        ("Brotli", "stores", PARQUET, lambda _: _stores(["North"] * 1000, "brotli")),
        ("one long name a million times", "menu_items", PARQUET, lambda _: _dictionary_bomb("x" * (1 << 20))),
        ("a gigabyte of plain text", "menu_items", PARQUET, lambda _: _text_bomb()),
        ("cut Parquet", "stores", PARQUET, _cut),
        ("random bytes as Parquet", "users", PARQUET, lambda chance: chance.randbytes(1 << 20)),
        ("Parquet's magic around random bytes", "users", PARQUET, _in_magic),
        ("random bytes as CSV", "users", CSV, lambda chance: chance.randbytes(1 << 20)),
        ("an endless line of CSV", "users", CSV, lambda _: b"user_id,birthdate\n" + b"7" * (32 << 20)),
    ]


def _stores(names: list[str], compression: str) -> bytes:
    ids = pa.array(range(1, len(names) + 1), pa.int64())
    rows = pa.table({"store_id": ids, "store_name": pa.array(names)}, TABLES["stores"].schema)
    return _parquet(rows, compression=compression, use_dictionary=False)


def _dictionary_bomb(text: str) -> bytes:
    count = 1_000_000
    names = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))
    rows = pa.Table.from_arrays([pa.array(range(count)), names], ["item_id", "item_name"])
    return _parquet(rows, store_schema=False, compression="zstd", use_dictionary=True)


def _text_bomb() -> bytes:
    rows = pa.table(
        {"item_id": pa.array(range(16_384)), "item_name": pa.array(["a" * 2000] * 16_384)},
        TABLES["menu_items"].schema,
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(40):
            writer.write_table(rows)
    return bytes(sink.getvalue())


def _cut(chance: random.Random) -> bytes:
    whole = _stores(["North"] * 1000, "none")
    return whole[: chance.randrange(1, len(whole))]


def _in_magic(chance: random.Random) -> bytes:
    return b"PAR1" + chance.randbytes(4096) + b"PAR1"


def _parquet(rows: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    return bytes(sink.getvalue())

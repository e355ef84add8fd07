"""Any valid data, sent by a client to a real service, has the answers that DuckDB computes, to the byte."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from any_sales import LARGEST_AMOUNT, Drawn, expected_files, write_folder
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from services import ANSWER_SECONDS, ENVIRONMENT, SMALL_BATCHES, Service

from catalog_tables import TABLES
from kopitiam.client.calls import Calls
from kopitiam.client.client import Client
from kopitiam.client.folder import check_structure, open_folder
from kopitiam.client.http import Transport
from kopitiam.client.upload import Sending, upload
from kopitiam.contracts.tables import CHUNK_ROWS
from kopitiam.questions.catalog import builtin
from kopitiam.synthetic import Profile, generate
from kopitiam.verification import verify

IS_FULL = bool(os.environ.get("KOPI_TEST_FULL"))
WILD_SEEDS = range(12) if IS_FULL else (0, 3, 7)
WILD_SCALE = 0.0005
MOST_CHUNKS = 60 if IS_FULL else 20  # of a table: each is a call of its own
AT_ONCE = 5

counts = st.sampled_from([1, 2, 255, 256, 1_024, 1_025, 1_100, 10_000, 65_537, CHUNK_ROWS])
any_sales = st.builds(
    Drawn,
    rows=st.sampled_from([1, 2, 59, 1_024, 5_000, 40_000]) | st.integers(1, CHUNK_ROWS),
    chunk_rows=st.sampled_from([1, 3, 1_000, 65_536, CHUNK_ROWS]) | st.integers(1, CHUNK_ROWS),
    ids=counts,
    amounts=counts,
    largest_amount=st.sampled_from([2_000_000, LARGEST_AMOUNT]),
    instants=counts,
    texts=counts,
    empty_percent=st.sampled_from([0, 1, 50, 99, 100]),
    order=st.sampled_from(["sorted", "reversed", "shuffled"]),
    seed=st.integers(0, 2**32 - 1),
)
ALL_DIFFERENT = Drawn(
    rows=CHUNK_ROWS,
    chunk_rows=CHUNK_ROWS,
    ids=10_000,
    amounts=CHUNK_ROWS,
    largest_amount=LARGEST_AMOUNT,
    instants=CHUNK_ROWS,
    texts=CHUNK_ROWS,
    empty_percent=1,
    order="shuffled",
    seed=1,
)
# More than 1,024 distinct amounts, few enough for a dictionary, and so small that the dictionary compresses.
MANY_AMOUNTS = replace(ALL_DIFFERENT, rows=20_000, chunk_rows=10_000, amounts=5_000, largest_amount=2_000_000)
ALWAYS = [
    ALL_DIFFERENT,
    MANY_AMOUNTS,
    replace(MANY_AMOUNTS, amounts=1_100, order="sorted", empty_percent=0),
    replace(ALL_DIFFERENT, rows=15, chunk_rows=1, order="reversed", empty_percent=50),
    replace(ALL_DIFFERENT, rows=CHUNK_ROWS + 1, ids=1, amounts=1, instants=1, texts=1, empty_percent=100),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = Service(tmp_path_factory.mktemp("wild") / "home", ENVIRONMENT | SMALL_BATCHES)
    served.start()
    yield served
    served.end()


def submit(service: Service, folder: Path, out: Path, chunk_rows: int = CHUNK_ROWS) -> int:
    """Sends a folder, waits, and downloads the answers to `out`; the number of chunks of transactions."""
    with Client.over(Transport(service.url, None)) as client:
        found = open_folder(folder, TABLES)
        check_structure(found)
        run = client.open_run()
        upload(Calls(Transport(service.url, None)), found, run.id, Sending(chunk_rows=chunk_rows))
        chunks = run.wait(ANSWER_SECONDS).tables["transactions"].chunks
        run.download(out)
    return chunks


def csv_files(out: Path) -> dict[str, bytes]:
    return {name: (out / answer.csv_name).read_bytes() for name, answer in builtin().items()}


def wild_seed_is_answered(service: Service, scratch: Path, seed: int) -> bool:
    data, out = scratch / f"data-{seed}", scratch / f"answers-{seed}"
    generate(data, WILD_SCALE, seed, profile=Profile.WILD)
    submit(service, data, out)
    assert csv_files(out) == expected_files(data)
    assert verify(data, out).differences == ()
    return True


def drawn_is_answered(service: Service, drawn: Drawn) -> bool:
    with tempfile.TemporaryDirectory(prefix="kopi-drawn-") as scratch:
        folder = write_folder(drawn, Path(scratch) / "data")
        chunk_rows = max(drawn.chunk_rows, -(-drawn.rows // MOST_CHUNKS))
        chunks = submit(service, folder, Path(scratch) / "answers", chunk_rows)
        assert chunks == -(-drawn.rows // chunk_rows)
        assert csv_files(Path(scratch) / "answers") == expected_files(folder), drawn
    return True


@settings(
    max_examples=40 if IS_FULL else 1,
    derandomize=not IS_FULL,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(drawn=st.lists(any_sales, min_size=AT_ONCE, max_size=AT_ONCE))
@example(drawn=ALWAYS)
def test_columns_of_any_cardinality_and_order_are_answered_in_chunks_of_any_size(
    service: Service, drawn: Iterable[Drawn]
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as clients:
        assert all(clients.map(lambda each: drawn_is_answered(service, each), drawn))


def test_wild_folders_are_answered(service: Service, tmp_path: Path) -> None:
    with ThreadPoolExecutor(AT_ONCE) as clients:
        assert all(clients.map(lambda seed: wild_seed_is_answered(service, tmp_path, seed), WILD_SEEDS))

"""Any valid data, sent by a client to a real service, has the answers that DuckDB computes, to the byte."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pytest
from any_sales import ALL_COLUMNS, LARGEST_AMOUNT, Drawn, expected_files, write_folder
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from services import ANSWER_SECONDS, ENVIRONMENT, SMALL_BATCHES, Service

from kopitiam.client.calls import Calls
from kopitiam.client.client import Client
from kopitiam.client.downloads import FORMS
from kopitiam.client.folder import check_structure, open_folder
from kopitiam.client.http import Transport
from kopitiam.client.upload import UploadOptions, upload
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import CHUNK_ROWS, Table
from kopitiam.questions.catalog import builtin
from kopitiam.questions.definitions import Question
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.synthetic import Profile, WildShape, generate
from kopitiam.synthetic.months import plan
from kopitiam.synthetic.wild import WildSales
from kopitiam.verification import verify
from sampling import IS_FULL

WILD_SEEDS = range(12) if IS_FULL else (0, 3, 7)
OWN_SEEDS = range(12) if IS_FULL else (4,)  # hostile texts in all columns, of which few are empty
WILD_SCALE = 0.0005
MOST_CHUNKS = 60 if IS_FULL else 20  # of a table: each is a call of its own
AT_ONCE = 5
MANY_VARIETIES = (100_000, 10_000)  # distinct amounts
CATALOG = list(builtin().values())

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


ALL_COLUMNS_ALWAYS = [replace(ALL_DIFFERENT, rows=6_000, chunk_rows=4_000, ids=1_000, empty_percent=50)]


def shortened(drawn: Drawn) -> Drawn:
    """Generate fewer rows: questions about all columns have one group per row."""
    return replace(drawn, rows=min(drawn.rows, 40_000 if IS_FULL else 4_000))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = Service(tmp_path_factory.mktemp("wild") / "home", ENVIRONMENT | SMALL_BATCHES)
    served.start()
    yield served
    served.end()


def submit(
    service: Service,
    folder: Path,
    out: Path,
    questions: Sequence[Question],
    *,
    chunk_rows: int = CHUNK_ROWS,
    forms: tuple[str, ...] = FORMS,
) -> int:
    """Send a folder, wait, download the answers to `out`. Returns the number of chunks of transactions."""
    with Client.over(Transport(service.url, None)) as client:
        found = open_folder(folder, tables_of(questions))
        check_structure(found)
        run = client.open_run(questions=own_of(questions), ask=[each.name for each in questions])
        upload(Calls(Transport(service.url, None)), found, run.id, UploadOptions(chunk_rows=chunk_rows))
        chunks = run.wait(ANSWER_SECONDS).tables["transactions"].chunks
        run.download(out, forms)
    return chunks


def tables_of(questions: Sequence[Question]) -> dict[str, Table]:
    """The tables that the questions need, with the columns that they need."""
    return QuestionSet.select(Parameters(), own_of(questions), [each.name for each in questions]).tables


def own_of(questions: Sequence[Question]) -> list[Question]:
    return [question for question in questions if question.name not in builtin()]


def csv_files(out: Path, questions: Sequence[Question]) -> dict[str, bytes]:
    return {question.name: (out / question.file_name("csv")).read_bytes() for question in questions}


def wild_seed_is_answered(service: Service, scratch: Path, seed: int, questions: Sequence[Question]) -> bool:
    data, out = scratch / f"data-{seed}", scratch / f"answers-{seed}"
    generate(data, WILD_SCALE, seed, profile=Profile.WILD)
    submit(service, data, out, questions)
    assert csv_files(out, questions) == expected_files(data, questions)
    assert verify(data, out).differences == ()
    return True


def drawn_is_answered(service: Service, drawn: Drawn, questions: Sequence[Question]) -> bool:
    with tempfile.TemporaryDirectory(prefix="kopi-drawn-") as scratch:
        folder = write_folder(drawn, Path(scratch) / "data", tables_of(questions).values())
        chunk_rows = max(drawn.chunk_rows, -(-drawn.rows // MOST_CHUNKS))
        out, forms = Path(scratch) / "answers", FORMS if questions is CATALOG else ("csv",)
        chunks = submit(service, folder, out, questions, chunk_rows=chunk_rows, forms=forms)
        assert chunks == -(-drawn.rows // chunk_rows)
        assert csv_files(out, questions) == expected_files(folder, questions), drawn
    return True


@pytest.mark.long
def test_own_questions_read_all_columns_of_all_tables() -> None:
    assert {name: table.columns for name, table in tables_of(ALL_COLUMNS).items()} == {
        name: table.columns for name, table in LAYOUT.items()
    }


any_number_of = settings(
    max_examples=40 if IS_FULL else 1,
    derandomize=not IS_FULL,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.long
@any_number_of
@given(drawn=st.lists(any_sales, min_size=AT_ONCE, max_size=AT_ONCE))
@example(drawn=ALWAYS)
def test_columns_of_any_cardinality_and_order_are_answered_in_chunks_of_any_size(
    service: Service, drawn: Iterable[Drawn]
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as clients:
        assert all(clients.map(lambda each: drawn_is_answered(service, each, CATALOG), drawn))


@pytest.mark.long
@any_number_of
@given(drawn=st.lists(any_sales.map(shortened), min_size=1, max_size=1))
@example(drawn=ALL_COLUMNS_ALWAYS)
def test_own_questions_about_all_columns_are_answered_for_any_columns(
    service: Service, drawn: Iterable[Drawn]
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as clients:
        assert all(clients.map(lambda each: drawn_is_answered(service, each, ALL_COLUMNS), drawn))


@pytest.mark.long
def test_wild_folders_are_answered(service: Service, tmp_path: Path) -> None:
    with ThreadPoolExecutor(AT_ONCE) as clients:
        assert all(
            clients.map(lambda seed: wild_seed_is_answered(service, tmp_path, seed, CATALOG), WILD_SEEDS)
        )


@pytest.mark.long
def test_own_questions_about_all_columns_of_wild_folders_are_answered(
    service: Service, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as clients:
        assert all(
            clients.map(lambda seed: wild_seed_is_answered(service, tmp_path, seed, ALL_COLUMNS), OWN_SEEDS)
        )


@pytest.mark.long
def test_wild_folders_with_100_000_and_10_000_distinct_amounts_in_a_chunk_are_answered(
    service: Service, tmp_path: Path
) -> None:
    """A folder of the usual scale has fewer rows than that."""
    shape = replace(WildShape.of_seed(0), stores=7, items=8, amounts=MANY_VARIETIES, variety=7)
    first, second, *_ = plan(WILD_SCALE)
    months = [
        replace(first, transactions=CHUNK_ROWS, items=CHUNK_ROWS),
        replace(second, transactions=12_000, items=12_000),
    ]
    for _ in WildSales(shape, 1, months).write(tmp_path / "data"):
        pass
    for table, column in (("transactions", "final_amount"), ("transaction_items", "subtotal")):
        files = sorted((tmp_path / "data" / table).iterdir())
        parsing = pa_csv.ParseOptions(newlines_in_values=True)
        distinct = [
            pc.count_distinct(pa_csv.read_csv(f, parse_options=parsing)[column]).as_py() for f in files
        ]
        assert all(have >= want - 4 for have, want in zip(distinct, MANY_VARIETIES, strict=True))

    chunks = submit(service, tmp_path / "data", tmp_path / "answers", CATALOG)

    assert chunks == len(months), "each file is a chunk"
    assert csv_files(tmp_path / "answers", CATALOG) == expected_files(tmp_path / "data", CATALOG)

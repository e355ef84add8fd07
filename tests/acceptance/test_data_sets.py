"""Data sets at a real service: months in any order, killed in between, answered as one analysis of the files;
and after a deletion nothing is left of a customer."""

import csv
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from services import ANSWER_SECONDS, ENVIRONMENT, SMALL_BATCHES, TIDY_SECONDS, Service, until

from kopitiam import Client
from kopitiam.client.run_handle import RunHandle
from kopitiam.synthetic import generate
from kopitiam.verification import verify
from sampling import IS_FULL, seed

SCALE = 0.0001  # 1,460 transactions in 24 months
MONTHS = [f"{year}{month:02}" for year in (2023, 2024, 2025) for month in range(1, 13)][6:30]
# Every upload passes these; the gateway's own are killed in its tests too, and those of merges by Spark's.
POINTS = (
    *("chunk.durable", "files.named", "file.ended", "data.sealing", "data.sealed", "table.announced"),
    *("batch.begun", "batch.read", "batch.written", "batch.unreported", "batch.committed"),
    *("barrier.decided", "barrier.opened", "barrier.forwarded", "final.claimed"),
    *("results.written", "results.published", "results.announced", "cleanup.files", "cleanup.done"),
)
STEP_SECONDS = 600
BIRTHDATE = "1931-02-17"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = Service(tmp_path_factory.mktemp("house") / "home", ENVIRONMENT | SMALL_BATCHES)
    yield served
    served.end()


@pytest.fixture
def service(house: Service) -> Service:
    if not house.is_alive:
        house.start()
    return house


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain") / "all"
    generate(folder, SCALE, seed=3)
    return folder


def add(everything: Path, folder: Path, months: list[str]) -> None:
    """Copy the files of these months to the folder, and those of stores and items."""
    for file in everything.rglob("*.csv"):
        month = file.stem.rpartition("_")[2]
        if month in months or not month.isdigit():
            copy = folder / file.relative_to(everything)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)


def correct(folder: Path, month: str, draw: random.Random) -> None:
    """Export a month again, with some rows less."""
    for table in ("transactions", "transaction_items"):
        file = folder / table / f"{table}_{month}.csv"
        header, *rows = file.read_text().splitlines(keepends=True)
        file.write_text(header + "".join(draw.sample(rows, max(1, len(rows) - 3))))


def is_exact(run: RunHandle, folder: Path, out: Path) -> bool:
    """Whether the answers are those of the files in the folder, by the independent check."""
    run.wait(ANSWER_SECONDS)
    run.download(out)
    assert verify(folder, out).differences == ()
    return True


@pytest.mark.timeout(24 * STEP_SECONDS)
@pytest.mark.long
def test_months_in_any_order_are_answered_as_one_analysis_whatever_is_killed(
    service: Service, everything: Path, tmp_path: Path
) -> None:
    """The first half comes at once. Then each step adds months, corrects one, or sends nothing new, while the
    service is killed at a crash point; the client only waits."""
    draw = random.Random(seed())
    months = draw.sample(MONTHS, len(MONTHS))
    folder = tmp_path / "exports"
    add(everything, folder, months[:12])
    name = "grown"
    with Client(service.url, patience_seconds=STEP_SECONDS) as client:
        assert is_exact(client.submit(folder, data=name), folder, tmp_path / "out-first")
    steps = [*(POINTS if IS_FULL else draw.sample(POINTS, 1)), None]
    rest = months[12:]
    share = max(1, len(rest) // len(steps))
    for number, point in enumerate(steps):
        new, rest = (rest, []) if point is None else (rest[:share], rest[share:])
        add(everything, folder, new)
        correct(folder, draw.choice(months[:12]), draw)
        with (
            ThreadPoolExecutor(1) as thread,
            Client(service.url, patience_seconds=STEP_SECONDS) as client,
        ):
            if point is not None:
                assert service.stop() == 0
                service.begin(KOPI_CRASH_AT=point)
            sending = thread.submit(client.submit, folder, data=name)
            if point is not None:
                assert service.has_died(STEP_SECONDS), f"not at {point}"
                service.start()
            run = sending.result(STEP_SECONDS)
            assert is_exact(run, folder, tmp_path / f"out-{number}"), point
    with Client(service.url) as client:
        again = client.submit(folder, data=name)
        assert again.status().data.upload is False  # nothing is new
        assert is_exact(again, folder, tmp_path / "out-again")
        assert is_exact(client.ask(name, years=2024, top=5), folder, tmp_path / "out-asked")
        assert client.data_set(name).version == 1 + len(steps)
        until(lambda: orphans(service.home, client, name) == set(), TIDY_SECONDS)


def orphans(home: Path, client: Client, name: str) -> set[str]:
    """Chunks in storage beyond those of the versions that are kept."""
    versions = client.data_set(name).versions
    files = [file for version in versions for file in client.data_set(name, version.version).files]
    chunks = {(file.table, file.name, file.digest): file.chunks for file in files}
    stored = list(home.glob("landing/table=*/shard=*/run=*/*.parquet"))
    return set() if len(stored) == sum(chunks.values()) else {str(path) for path in stored}


@pytest.mark.long
def test_two_commands_at_once_make_two_versions(
    service: Service, everything: Path, tmp_path: Path, kopi: Callable, is_verified: Callable
) -> None:
    folders = [tmp_path / "first", tmp_path / "second", tmp_path / "third"]
    for folder, months in zip(folders, (MONTHS[:8], MONTHS[8:9], MONTHS[9:10]), strict=True):
        add(everything, folder, months)
    options = ("--data", "shared", "--server", service.url)
    assert kopi("submit", folders[0], *options).code == 0
    with ThreadPoolExecutor(2) as threads:
        runs = list(threads.map(lambda folder: kopi("submit", folder, *options), folders[1:]))
    assert [run.code for run in runs] == [0, 0], [run.stderr for run in runs]
    shown = kopi("data", "show", "shared", "--server", service.url).stdout
    assert re.findall(r"^ *(\d) ", shown, re.MULTILINE)[:3] == ["3", "2", "1"], shown
    add(everything, folders[0], MONTHS[8:10])
    asked = kopi("ask", "shared", "--server", service.url, "--out", tmp_path / "answers")
    assert asked.code == 0, asked.stderr
    assert "data set shared, version 3" in asked.stdout
    assert is_verified(folders[0], tmp_path / "answers")
    require_exact_sql(folders[0], "shared", service.url, kopi, tmp_path / "revenue.xlsx")


def require_exact_sql(folder: Path, name: str, url: str, kopi: Callable, workbook: Path) -> None:
    """SQL gives the figures of the files, refuses to read anything else, and says what it could read."""
    revenue: dict[str, Decimal] = defaultdict(Decimal)
    for file in (folder / "transactions").glob("*.csv"):
        with file.open(newline="") as rows:
            for row in csv.DictReader(rows):
                revenue[row["store_id"].removesuffix(".0")] += Decimal(row["final_amount"])
    select = "select store_id, sum(final_amount) as revenue from transactions group by store_id"
    result = kopi("sql", name, select, "--format", "csv", "--server", url)
    assert result.code == 0, result.stderr
    header, *lines = csv.reader(result.stdout.splitlines())
    assert header == ["store_id", "revenue"]
    assert {store: Decimal(total) for store, total in lines} == revenue
    saved = kopi("sql", name, f"{select} order by revenue desc limit 2", "--out", workbook, "--server", url)
    assert saved.code == 0 and "2 rows of data set shared, version 3" in saved.stderr
    assert workbook.stat().st_size
    shown = kopi("sql", name, "select count(*) as n from stores", "--server", url).stdout
    assert re.match(r" *n\n *\d+\n1 row of data set shared, version 3, in ", shown), shown
    for text, code, reason in [
        ("select * from csv.`/etc/passwd`", 2, "is not a table"),
        (
            "select street from stores",
            2,
            "no column street; stores has store_id, store_name; to keep",
        ),
    ]:
        refused = kopi("sql", name, text, "--server", url)
        assert refused.code == code and reason in refused.stderr, refused.stderr


def traces_of(home: Path, text: str) -> list[str]:
    """The files below home that have this text."""
    return [
        str(path.relative_to(home))
        for path in home.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def data_below(home: Path) -> list[str]:
    """Chunks, partials, answers, rejected rows, results of SQL. Parquet is compressed: none may be there."""
    places = ("landing", "partials", "results", "rejected", "queries")
    return [str(path) for place in places for path in (home / place).rglob("*") if path.is_file()]


@pytest.mark.long
def test_after_a_deletion_nothing_is_left_of_a_customer(
    tmp_path: Path, everything: Path, kopi: Callable
) -> None:
    service = Service(tmp_path / "service" / "home", ENVIRONMENT | SMALL_BATCHES)
    folder = tmp_path / "exports"
    add(everything, folder, MONTHS[6:9])
    header, *sales = (folder / f"transactions/transactions_{MONTHS[6]}.csv").read_text().splitlines()
    user = header.split(",").index("user_id")
    known = next(row.split(",")[user] for row in sales if row.split(",")[user])
    users = folder / "users" / f"users_{MONTHS[6]}.csv"
    columns = users.read_text().splitlines()[0].split(",")
    cells = {
        "user_id": known,
        "birthdate": BIRTHDATE,
        "gender": "female",
        "registered_at": "2023-01-01 00:00:00",
    }
    row = ",".join(cells[column] for column in columns)
    bad = ",".join((cells | {"user_id": "nobody"})[column] for column in columns)
    users.write_text(f"{','.join(columns)}\n{row}\n{bad}\n")
    definition = tmp_path / "mine.toml"
    definition.write_text(
        '[[question]]\nname = "born"\ntitle = "Born on a day"\nfrom = "transactions"\n'
        f"where = [\"created_at > '{BIRTHDATE} 00:00:00'\"]\n"
        'by = { user_id = "user_id" }\nmeasure = { n = "count(*)" }\ncolumns = ["birthdate", "n"]\n'
    )
    server = ("--server", service.url)
    try:
        service.start()
        asked = kopi(
            "submit", folder, "--data", "sales", "--questions", definition, "--label", BIRTHDATE, *server
        )
        assert asked.code == 0, asked.stderr
        again = kopi("ask", "sales", "--questions", definition, "--years", "2024", *server)
        assert again.code == 0, again.stderr
        born = f"select birthdate from users where birthdate = date '{BIRTHDATE}'"
        assert BIRTHDATE in kopi("sql", "sales", born, *server).stdout
        assert list(service.home.glob("queries/data=*/query=*/*.parquet"))
        plain = kopi("submit", folder, "--json", *server)
        assert plain.code == 0, plain.stderr
        run = re.search(r'"run": "(\w+)"', plain.stdout)
        assert run and traces_of(service.home, BIRTHDATE) and data_below(service.home)
        assert kopi("runs", "delete", run.group(1), *server).code == 0
        assert kopi("data", "drop", "sales", "--yes", *server).code == 0
        until(lambda: data_below(service.home) == [], TIDY_SECONDS)
        until(lambda: traces_of(service.home, BIRTHDATE) == [], TIDY_SECONDS)
        assert kopi("runs", *server).stdout == "no runs\n"
        assert kopi("data", *server).stdout == "no data sets\n"
    finally:
        service.end()

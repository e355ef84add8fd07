"""SQL over the tables of a data set: exact, as DuckDB computes it from the same rows; with limits on time,
rows and memory; and nothing else to read, whatever a message asks."""

import hashlib
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunked_sales import cut, sales
from pipelines import FOR_LONG, Pipeline, answers_in
from test_worker import leading, publish_ends, running

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.data_sets import DataRequest, SourceFile
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.messages import SQL_QUEUE, SqlRequest
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.sql_queries import (
    BEGIN_SECONDS,
    BEGUN_FILE,
    OUTCOME_FILE,
    REQUEST_FILE,
    QueryOutcome,
    QueryRequest,
    new_query_id,
)
from kopitiam.contracts.tables import Kind
from kopitiam.landing.chunks import encode
from kopitiam.pipeline import sql_queries, sql_results
from kopitiam.pipeline.sql_queries import SqlQueries
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.query_files import QueryFolder
from sampling import sampled, seed
from waiting import eventually

ROWS = 400
LONG_TEXT = "x" * 1_000
BEGIN = datetime(2024, 1, 1)
SCALE = 10_000
CROSS_JOIN = ", ".join(f"transactions t{number}" for number in range(6))


def made_rows() -> dict[str, list[dict[str, Any]]]:
    """Tables with empty cells, amounts of four decimals, negative and large ones, and unmatched ids."""
    chance = random.Random(7)
    stores = [
        {"store_id": n, "store_name": f"Store {n}", "city": "Ipoh" if n % 2 else None} for n in range(1, 6)
    ]
    amounts = [Decimal(chance.randint(-(10**6), 10**9)) / SCALE for _ in range(ROWS - 1)]
    transactions = [
        {
            "transaction_id": f"{number:032x}",
            "store_id": chance.randint(1, 6),
            "user_id": chance.choice([None, *range(1, 40)]),
            "final_amount": amount,
            "created_at": BEGIN + timedelta(seconds=chance.randint(0, 366 * 86_400)),
        }
        for number, amount in enumerate([*amounts, Decimal("900000000000.0001")])
    ]
    users = [
        {"user_id": n, "gender": LONG_TEXT, "birthdate": date(1990, 1, n % 28 + 1)} for n in range(1, 40)
    ]
    return {"stores": stores, "transactions": transactions, "users": users}


class World:
    """A data set in the storage of a pipeline, and the same rows in DuckDB."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.queries = SqlQueries(pipeline.work, pipeline.finalizer.scratch)
        self.duck = duckdb.connect()
        self.data_set = self._send(made_rows())

    def _send(self, tables: dict[str, list[dict[str, Any]]]) -> str:
        registry = self.pipeline.registry
        opened = registry.open_data_run(
            QuestionSet.select(Parameters(), [], ["3"]).to_dict(),
            "",
            "anna",
            DataRequest("sales", True),
            idempotency_key=None,
            lease_seconds=FOR_LONG,
            shards=1,
            max_data_sets=10,
        )
        run = opened.run.run
        for table, rows in tables.items():
            self._send_file(run, table, rows)
        registry.seal_run(run)
        return registry.data_set("anna", "sales").id

    def _send_file(self, run: str, table: str, rows: list[dict[str, Any]]) -> None:
        registry = self.pipeline.registry
        form = LAYOUT[table].normal_form(rows[0])
        source = SourceFile(table, f"{table}.csv", "d" * 64, 1, tuple(rows[0]))
        (file,) = registry.name_files(run, [source])
        exact = pa.Table.from_pylist(rows)
        for column in form.columns:
            if column.kind is Kind.MONEY:
                at = exact.column_names.index(column.name)
                amounts = exact[column.name].cast(pa.decimal128(19, 4))
                exact = exact.set_column(at, column.name, amounts)
        self.duck.register(table, exact)
        for number, piece in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
            at_rest = [
                {k: int(v * SCALE) if isinstance(v, Decimal) else v for k, v in row.items()} for row in piece
            ]
            content = encode(form, pa.Table.from_pylist(at_rest, form.schema))
            digest = hashlib.sha256(content).hexdigest()
            registered = registry.register_file_chunk(
                run, file.file, number, digest=digest, rows=len(piece), bytes=1, rejected=0, landed=digest
            )
            place = registered.chunk.origin
            key = KEYS.chunk(place.file, table, place.shard, place.number)
            self.pipeline.storage.replace(self.pipeline.storage.name_of(key, digest), content)
        registry.end_file(run, file.file, 2, len(rows))

    def folder(self, query: str) -> QueryFolder:
        return QueryFolder(self.pipeline.storage, self.data_set, query)

    def request(self, text: str, *, query: str = "", **limits: int) -> SqlRequest:
        """Stores a request, as a gateway does, and returns the message about it."""
        query = query or new_query_id(self.pipeline.registry.now())
        fields = {"seconds": 60, "rows": 1_000, "version": 1} | limits
        self.folder(query).write_request(QueryRequest(data="sales", sql=text, **fields))
        return SqlRequest(query=query, data_set=self.data_set)

    def ask(self, text: str, **limits: int) -> tuple[QueryOutcome, pa.Table | None]:
        request = self.request(text, **limits)
        self.queries.answer(request)
        return self.outcome(request)

    def outcome(self, request: SqlRequest) -> tuple[QueryOutcome, pa.Table | None]:
        folder = self.folder(request.query)
        record = folder.read()
        assert record is not None and record.begun is not None and record.outcome is not None
        names = {path.name for path in self.pipeline.home.query(request.data_set, request.query).iterdir()}
        assert names == {REQUEST_FILE, BEGUN_FILE, OUTCOME_FILE, record.outcome.result} - {""}
        if record.outcome.error:
            return record.outcome, None
        return record.outcome, pq.read_table(self.pipeline.storage.path(folder.key / record.outcome.result))

    def error(self, text: str, **limits: int) -> str:
        outcome, table = self.ask(text, **limits)
        assert table is None
        assert (
            outcome.error and "\n" not in outcome.error and str(self.pipeline.home.path) not in outcome.error
        )
        return outcome.error


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("sql")
    pipeline = Pipeline(spark, path)
    with closing(pipeline.registry):
        yield World(pipeline)


QUERIES = [
    "select store_name, count(*) as n, sum(final_amount) as total, max(created_at) as last "
    "from transactions t join stores s on s.store_id = t.store_id group by store_name order by total desc",
    "with days as (select store_id, cast(created_at as date) as day, sum(final_amount) as revenue "
    "from transactions group by 1, 2) select day, store_id, revenue - lag(revenue) over "
    "(partition by store_id order by day) as change from days order by day, store_id",
    "select t.transaction_id, final_amount, birthdate from transactions t left join users u "
    "on u.user_id = t.user_id where final_amount > 99999.9999 order by 1",
    "select month(created_at) as m, count(distinct user_id) as users, min(final_amount) as least "
    "from transactions where user_id is not null group by 1 having count(*) > 1 order by 1",
    "select s.store_id, city, (select max(final_amount) from transactions) as most from stores s "
    "where not exists (select 1 from transactions t where t.store_id = s.store_id) or city is null "
    "order by 1",
    "select store_id from transactions except select store_id from stores order by 1",
]


@pytest.mark.parametrize("text", sampled(QUERIES, 3, seed()))
def test_queries_give_exactly_what_duckdb_computes(world: World, text: str) -> None:
    outcome, table = world.ask(text)
    assert outcome.error is None
    expected = world.duck.sql(text).fetchall()
    assert expected, "a query without rows compares nothing"
    assert [tuple(row.values()) for row in table.to_pylist()] == expected
    assert (outcome.rows, outcome.is_cut) == (len(expected), False)


def test_money_is_decimal_and_columns_have_clean_types_and_unique_names(world: World) -> None:
    text = (
        "select final_amount, final_amount * 3, year(created_at), created_at, user_id, null as nothing, "
        "avg(final_amount) over (), s.store_id, t.store_id, city is null as is_unknown "
        "from transactions t join stores s on s.store_id = t.store_id order by final_amount desc limit 3"
    )
    outcome, table = world.ask(text)
    assert table["final_amount"].type == pa.decimal128(19, 4)
    kinds = "decimal decimal integer instant integer text decimal integer integer boolean"
    assert [column.kind for column in outcome.columns] == kinds.split()
    assert [column.name for column in outcome.columns][7:9] == ["store_id", "store_id_2"]
    assert "run" not in table.column_names
    assert table["created_at"].type == pa.timestamp("us")


def test_rows_are_cut_at_the_limit(world: World) -> None:
    outcome, table = world.ask("select * from transactions order by transaction_id", rows=7)
    assert (outcome.rows, outcome.is_cut, table.num_rows) == (7, True, 7)
    assert table["transaction_id"].to_pylist() == [f"{number:032x}" for number in range(7)]
    assert world.ask("select * from stores", rows=5)[0].is_cut is False
    assert world.ask("select * from stores where store_id < 0")[1].num_rows == 0


@pytest.mark.long
def test_a_query_that_takes_too_long_is_cancelled_while_a_run_goes_on(world: World) -> None:
    """The cross join has 400^6 rows."""
    text = f"select count(*) from {CROSS_JOIN} where t0.final_amount > t5.final_amount"
    slow = world.request(text, seconds=3)
    pipeline = world.pipeline
    with closing(MemoryBus()) as bus, running(pipeline, bus) as worker, leading(pipeline, bus):
        worker.ready.result()
        bus.send(SQL_QUEUE, slow)
        data = sales(seed=4)
        run = pipeline.upload(cut(data, rows_a_chunk=200))
        publish_ends(pipeline, bus, run)
        eventually(lambda: pipeline.state(run) is RunState.DONE, 120)
        eventually(lambda: world.folder(slow.query).read().outcome, 120)
    assert world.outcome(slow)[0].error == "took longer than 3 s, and was cancelled"
    assert answers_in(pipeline.published(run))


FORBIDDEN = [
    "select * from parquet.`/etc/passwd`",
    "select * from text.`/etc/passwd`",
    "drop table transactions",
    "create table stolen using parquet location '/tmp/stolen' as select * from users",
    "insert overwrite directory '/tmp/stolen' using csv select * from users",
    "select reflect('java.lang.System', 'getenv', 'HOME') from stores",
    "select java_method('java.lang.System', 'exit', 1) from stores",
    "select * from stores; set spark.sql.ansi.enabled=false",
    "add jar '/tmp/x.jar'",
    "select input_file_name() from stores",
    "select _metadata.file_path from stores",
]


def test_forged_messages_with_forbidden_sql_have_no_effect(world: World, tmp_path: Path) -> None:
    for text in FORBIDDEN:
        assert world.error(text).startswith("SQL: "), text
    assert not Path("/tmp/stolen").exists()
    assert world.ask("select count(*) from stores")[1].to_pylist() == [{"count(1)": 5}]


def test_variables_of_the_environment_and_settings_are_plain_text_in_a_query(world: World) -> None:
    variables = "'${env:PATH}' as a, '${system:user.dir}' as b, '${spark:spark.app.id}' as c"
    text = f"select {variables} from stores limit 1"
    _, table = world.ask(text)
    row = {"a": "${env:PATH}", "b": "${system:user.dir}", "c": "${spark:spark.app.id}"}
    assert table.to_pylist() == [row]
    assert os.environ["PATH"] not in str(row)


def test_hidden_columns_are_not_reachable_even_without_the_check(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second fence: what the views expose."""
    checked = sql_queries.check_sql("select * from stores")
    for text in ("_metadata.file_path", "run", "shard"):
        monkeypatch.setattr(
            sql_queries,
            "check_sql",
            lambda _, name=text: type(checked)(f"select {name} from stores", checked.tables),
        )
        assert f"there is no column {text}" in world.error("select 1 from stores")
    for text in ("select * from parquet.`/etc`", "select * from csv.`/etc/passwd`", "select * from users"):
        monkeypatch.setattr(
            sql_queries, "check_sql", lambda _, text=text: type(checked)(text, checked.tables)
        )
        assert world.error("select 1 from stores")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "select street from stores",
            "there is no column street; stores has store_id, store_name, city; to keep every column, send "
            "the files again with: kopi submit DIR --data sales --columns all",
        ),
        ("select price from menu_items", "this version has no menu_items"),
        ("select 1 / (store_id - store_id) from stores", "Division by zero"),
        ("select (select gender from transactions a, transactions b, users) from stores", "one row"),
        (
            "select 1 from stores s left join (select a.user_id from transactions a, transactions b, users) "
            "t on t.user_id > s.store_id",
            "too large",
        ),
        (
            "select 1 from stores a left join stores b on b.store_id > a.store_id left join transactions c "
            "on c.store_id > b.store_id left join transactions d on d.store_id > c.store_id "
            "left join users e on e.user_id > d.user_id",
            "combine too many rows",
        ),
        ("select (store_id, city) from stores", "cast struct"),
        (f"select {', '.join(['1'] * 101)} from stores", "at most 100"),
        (f"select concat({', '.join(['gender'] * 16)}) from users, stores", "more than 1 MB"),
    ],
)
def test_mistakes_and_excesses_are_refused_in_one_line(
    world: World, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_results, "MOST_TEXT_BYTES", 1 << 20)
    assert reason in world.error(text)


def test_a_version_that_is_not_kept_reads_nothing(world: World) -> None:
    error = world.error("select 1 from stores", version=9)
    assert error == "version 9 does not exist, or is not kept any more"


def test_late_repeated_and_forged_messages_begin_nothing(world: World) -> None:
    now = world.pipeline.registry.now()
    late = world.request("select 1 from stores", query=new_query_id(now - BEGIN_SECONDS - 2))
    world.queries.answer(late)
    assert world.folder(late.query).read().begun is None
    world.queries.answer(SqlRequest(query=new_query_id(now), data_set=world.data_set))
    done = world.request("select 1 from stores")
    world.queries.answer(done)
    before = world.folder(done.query).read()
    world.queries.answer(done)
    assert world.folder(done.query).read() == before


def test_a_query_is_cancelled_at_its_time_limit(world: World) -> None:
    error = world.error(f"select count(*) from {CROSS_JOIN}", seconds=1)
    assert error == "took longer than 1 s, and was cancelled"


def test_a_query_is_cancelled_when_nobody_wants_its_result(world: World) -> None:
    """The cross join has 400^6 rows; its time limit is an hour."""
    request = world.request(f"select count(*) from {CROSS_JOIN}", seconds=3_600)
    with ThreadPoolExecutor(1) as threads:
        answering = threads.submit(world.queries.answer, request)
        eventually(lambda: (record := world.folder(request.query).read()) and record.begun, 60)
        world.folder(request.query).remove()
        answering.result(60)
    assert not world.pipeline.home.query(request.data_set, request.query).exists()


def test_a_file_that_lost_rows_is_named_and_not_read(world: World) -> None:
    file = next(iter((world.pipeline.home.path / "landing" / "table=users").rglob("*.parquet")))
    content = file.read_bytes()
    try:
        pq.write_table(pq.read_table(file).slice(1), file)
        assert "a file of users has 19 rows, 20 were registered" in world.error("select 1 from users")
    finally:
        file.write_bytes(content)

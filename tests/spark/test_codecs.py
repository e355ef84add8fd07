"""What the gateway accepts, Spark can read: chunks as written now and before, and what others may send."""

import itertools
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunked_sales import NAMES, NOON, Chunk, in_normal_form, plain
from plans import KINDS, partial_plan
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from catalog_tables import TABLES
from forged_footers import Change, Field, Struct, forged, row_groups, without_column_orders, written_by
from kopitiam.contracts.api import PARQUET
from kopitiam.contracts.batches import kind_of
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS, Kind, Table
from kopitiam.contracts.uuids import pack
from kopitiam.gateway.examination import Finding, Order, examine
from kopitiam.gateway.parquet_format import CODECS, ENCODINGS
from kopitiam.landing.chunks import encode
from kopitiam.pipeline.compiler.partials import PartialLayout
from kopitiam.pipeline.tables import read_table
from kopitiam.questions.layout import LAYOUT
from sampling import sampled

MANY, SOME = 60_000, 3_000  # rows, with as many distinct amounts
FEW = 700  # rows of a table with all columns
BOOLEAN_RUN = 100  # rows with the same boolean: long enough for a run of RLE
BLOOM_BYTES = 32  # of a bloom filter for a few values
LARGEST_ID, LARGEST_UNITS = 10**17 - 1, 10**18 - 1


def encode_as_before(table: Table, rows: pa.Table) -> bytes:
    """As earlier versions wrote it; such chunks may still be at rest after an upgrade."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        row_group_size=max(rows.num_rows, 1),
        compression={c.name: "none" if c.kind is Kind.TEXT else "lz4" for c in table.columns},
        use_dictionary=[column.name for column in table.columns if column.repeats],
        store_schema=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def sales_without_equal_amounts(count: int) -> list[Chunk]:
    """The dictionary of their amounts is larger than any page that is read before it."""
    draw = random.Random(7)
    amounts = draw.sample(range(1, 2_000_000), count)
    time = "2024-03-01 12:00:00"
    tables = NAMES | {
        "transactions": [
            (
                f"sale {n}" if n % 2 else str(uuid.UUID(int=n << 100)),
                n % 3 + 1,
                draw.choice([None, 1, 2, 3]),
                f"{amount / 10_000:.4f}",
                time,
            )
            for n, amount in enumerate(amounts)
        ],
        "transaction_items": [
            (n % 2 + 1, n % 3_000, f"{amount / 10_000:.4f}", time) for n, amount in enumerate(amounts[:SOME])
        ],
    }
    return [Chunk(table, 0, rows) for table, rows in tables.items()]


@pytest.mark.parametrize("encoder", [encode, encode_as_before], ids=["now", "before"])
def test_chunks_with_thousands_of_distinct_amounts_are_read(make_pipeline, encoder):
    pipeline, chunks = make_pipeline(), sales_without_equal_amounts(MANY)
    run = pipeline.open()
    for chunk in chunks:
        rows = in_normal_form(chunk.table, chunk.rows)
        pipeline.put_table(run, chunk.table, chunk.number, rows, encode=encoder)
    pipeline.seal(run)
    pipeline.process()
    assert pipeline.state(run) is not RunState.FAILED, pipeline.reason(run)
    pipeline.finish(run)
    assert pipeline.answers(run) == plain(chunks)


def written(rows: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **({"store_schema": False} | options))
    return bytes(sink.getvalue())


def nullable(rows: pa.Table) -> pa.Table:
    schema = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    return pa.Table.from_arrays(rows.columns, schema=schema)


def ways_to_write() -> dict[str, Callable[[pa.Table], bytes]]:
    """Codecs with versions of pages and of the format, with and without dictionaries (sampled); and more."""
    codecs = [codec.lower().replace("uncompressed", "none") for codec in CODECS]
    ways: dict[str, Callable[[pa.Table], bytes]] = {}
    combinations = itertools.product(codecs, ("1.0", "2.0"), ("1.0", "2.6"), (False, True))
    for codec, page, version, is_encoded in sampled(combinations, 12):
        options = {
            "compression": codec,
            "data_page_version": page,
            "version": version,
            "use_dictionary": is_encoded,
        }
        ways[f"{codec}, pages {page}, format {version}, {is_encoded}"] = lambda rows, o=options: written(
            rows, **o
        )  # type: ignore[misc]
    return ways | {
        "dictionaries that are given up": lambda rows: written(rows, dictionary_pagesize_limit=1024),
        "small pages": lambda rows: written(rows, data_page_size=512, write_batch_size=64),
        "pages of one size": lambda rows: written(rows, use_dictionary=False, data_page_size=1 << 24),
        "row groups": lambda rows: written(rows, row_group_size=-(-rows.num_rows // 64)),
        "optional columns": lambda rows: written(nullable(rows)),
        "columns in another order": lambda rows: written(rows.select(rows.column_names[::-1])),
        "no statistics": lambda rows: written(rows, write_statistics=False),
        "checksums": lambda rows: written(rows, write_page_checksum=True),
        "Arrow's schema": lambda rows: written(rows, store_schema=True),
        "ids as numbers": lambda rows: written(with_numbers(rows)),
    }


def with_numbers(rows: pa.Table) -> pa.Table:
    """The rows with UUIDs as two numbers."""
    if "transaction_id" not in rows.schema.names:
        return rows
    packed = pack(rows["transaction_id"].combine_chunks())
    columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | {
        "transaction_id": packed.texts,
        "transaction_id_high": packed.high,
        "transaction_id_low": packed.low,
    }
    return pa.table(columns)


UUIDS = [str(uuid.UUID(int=n)) for n in (0, 1, 1 << 63, 1 << 64, (1 << 127) + 10, (1 << 128) - 1)]


@pytest.mark.long
def test_ids_are_the_same_texts_in_every_form_of_a_chunk(make_pipeline):
    """As texts, as numbers, and mixed, in one batch: each sale is listed once for each chunk."""
    forms = {"texts": UUIDS, "numbers": UUIDS, "mixed": [*UUIDS, "sale", "ÀÉ", UUIDS[0].replace("-", "")]}
    chunks = [Chunk(table, 0, rows) for table, rows in NAMES.items()]
    chunks.append(Chunk("transaction_items", 0, [(1, 1, "5", NOON)]))
    for number, ids in enumerate(forms.values()):
        chunks.append(Chunk("transactions", number, [(each, 1, 2, f"{75 + number}", NOON) for each in ids]))
    pipeline = make_pipeline()
    run = pipeline.open()
    for chunk in chunks:
        rows = in_normal_form(chunk.table, chunk.rows)
        pipeline.put_table(run, chunk.table, chunk.number, with_numbers(rows) if chunk.number else rows)
    pipeline.seal(run)
    pipeline.process()
    pipeline.finish(run)
    expected = plain(chunks)
    assert pipeline.answers(run) == expected
    assert len(expected["1"]) == 3 * len(UUIDS) + 3


@pytest.mark.long
def test_spark_reads_what_the_gateway_accepts(make_pipeline, spark, tmp_path):
    """All ways as runs of one batch, with the filters of the questions: each leaves the same partials, and
    the tables that are joined have the same rows."""
    pipeline, chunks, body = make_pipeline(), sales_without_equal_amounts(SOME), tmp_path / "body"
    ways = {"as the client writes it": None} | ways_to_write()
    runs, keys, encodings = {}, defaultdict(list), set()
    for name, way in ways.items():
        runs[name] = pipeline.open()
        for chunk in chunks:
            rows = in_normal_form(chunk.table, chunk.rows)
            body.write_bytes(content := way(rows) if way else encode(TABLES[chunk.table], rows))
            order = Order(str(body), PARQUET, chunk.table, list(rows.column_names), "", "", 1 << 26, 1 << 20)
            assert examine(order) == Finding(rows.num_rows), name
            group = pq.read_metadata(pa.BufferReader(content)).row_group(0)
            encodings |= {e for index in range(group.num_columns) for e in group.column(index).encodings}
            key = pipeline.put_table(runs[name], chunk.table, 0, rows, encode=lambda *_, c=content: c)
            keys[chunk.table].append(pipeline.storage.url(key))
        pipeline.seal(runs[name])
    assert encodings == ENCODINGS
    pipeline.process()
    failed = {
        name: pipeline.reason(run) for name, run in runs.items() if pipeline.state(run) is RunState.FAILED
    }
    assert failed == {}
    expected, *others = (partials_of(pipeline, run) for run in runs.values())
    assert set(expected) == set(KINDS)
    assert [name for name, partials in zip([*runs][1:], others, strict=True) if partials != expected] == []
    landing = pipeline.storage.url(KEYS.landing)
    for table, filtered in (("stores", None), ("menu_items", None), ("users", f.col("user_id").isin([1, 3]))):
        frame = read_table(spark, landing, TABLES[table], keys[table])
        frame = frame if filtered is None else frame.where(filtered)
        columns = [column.name for column in TABLES[table].columns]
        rows_read = Counter(map(tuple, frame.select("run", *columns).collect()))
        rows = in_normal_form(table, NAMES[table]).to_pylist()
        expected_rows = [row for row in rows if filtered is None or row["user_id"] in (1, 3)]
        assert rows_read == Counter((run, *row.values()) for run in runs.values() for row in expected_rows), (
            table
        )
    pipeline.finish(runs["as the client writes it"])
    assert pipeline.answers(runs["as the client writes it"]) == plain(chunks)


def any_cells(kind: Kind, draw: random.Random) -> list[Any]:
    """One cell for each row: both bounds of the kind, and others between them."""
    match kind:
        case Kind.TEXT:
            edges = ["'", "☕" * MAX_TEXT_CHARACTERS, "\0", "\U0010ffff"]
            return [*edges, *(draw.choice("aZé咖") * draw.randint(1, 40) for _ in range(FEW - len(edges)))]
        case Kind.ID:
            return [0, LARGEST_ID, *(draw.randint(1, 9) for _ in range(FEW - 2))]
        case Kind.COUNT | Kind.MONEY:
            largest = LARGEST_ID if kind is Kind.COUNT else LARGEST_UNITS
            return [largest, -largest, *(draw.randint(-99, 99) for _ in range(FEW - 2))]
        case Kind.DATE:
            return [date.min, date.max, *(date(1999, 12, 1) + timedelta(n % 60) for n in range(FEW - 2))]
        case Kind.INSTANT:
            edges = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)]
            others = (datetime(2024, 2, 28) + timedelta(seconds=7_919 * n) for n in range(FEW - 2))
            return [each.replace(tzinfo=UTC) for each in (*edges, *others)]
        case Kind.BOOLEAN:
            runs = (value for value in itertools.cycle([True, False]) for _ in range(BOOLEAN_RUN))
            mixed = (draw.random() < 0.5 for _ in range(FEW // 2))
            return [*itertools.islice(runs, FEW - FEW // 2), *mixed]
    raise AssertionError(kind)


def rows_with_all_columns(table: Table) -> pa.Table:
    """A fifth of the optional cells is empty; the ids of a table that gives attributes differ."""
    draw = random.Random(table.name)
    key = LAYOUT[table.name].key
    columns = {}
    for column in table.columns:
        cells = any_cells(column.kind, draw) if column.name != key else [*range(FEW)]
        columns[column.name] = [
            None if column.is_optional and place > 3 and draw.random() < 0.2 else cell
            for place, cell in enumerate(cells)
        ]
    return pa.table(columns, table.schema)


def deprecated_bounds(footer: Struct) -> None:
    """As old writers stated them: in the deprecated fields, texts by signed bytes."""
    for group in row_groups(footer):
        for chunk in group[1].value[1]:
            statistics = chunk[3].value[12].value
            if (bounds := (statistics.pop(5, None), statistics.pop(6, None))) != (None, None):
                statistics[1], statistics[2] = bounds


def without_sizes(footer: Struct) -> None:
    for group in row_groups(footer):
        del group[6]


REWRITTEN: dict[str, Change] = {
    "deprecated bounds": deprecated_bounds,
    "no column orders": without_column_orders,
    "a writer that Arrow does not trust": written_by(b"parquet-mr version 1.7.0"),
    "row groups without a size": without_sizes,
    "a field of a later version": lambda footer: footer.update({99: Field(8, b"later")}),
}
CONDITIONS = {
    "menu_items": [
        "is_seasonal", "not is_seasonal", "is_seasonal is null", "item_name = '\\''", "item_name <> '\\''",
        "category < 'b'", "category is null", "price > 0", "price is not null",
        "available_from < date'1999-12-02'", "available_to is null or available_to > date'2024-01-01'",
    ],
    "users": [
        "gender = '\\''", "gender >= 'é'", "gender is null", "registered_at is null",
        "registered_at < timestamp'2024-02-29 00:00:00'", "birthdate = date'9999-12-31'",
        "user_id in (1, 699)",
    ],
    "transactions": [
        "transaction_id = '\\''", "payment_method_id = 3", "voucher_id is null", "original_amount < 0",
        "discount_applied is null", "final_amount = 999999999999999999",
        "created_at >= timestamp'2024-03-01 00:00:00'",
    ],
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", CONDITIONS)
def test_all_columns_are_read_and_filtered_however_they_are_written(spark, tmp_path, name):
    """Spark pushes the conditions down to the statistics of the files."""
    table = LAYOUT[name].normal_form(LAYOUT[name].by_name)
    rows = rows_with_all_columns(table)
    runs = {}
    for way, body in bodies_of(rows).items():
        runs[way] = f"run-{len(runs):02d}"
        path = landed(tmp_path, name, runs[way], body)
        order = Order(str(path), PARQUET, name, list(rows.column_names), "", "", 1 << 26, 1 << 20)
        assert examine(order) == Finding(FEW), way

    files = [str(path) for path in tmp_path.rglob("*.parquet")]
    frame = read_table(spark, str(tmp_path), table, files).select("run", *rows.column_names)

    read = counted_by_run(frame)
    expected = Counter(tuple(row.values()) for row in rows.to_pylist())
    assert [way for way, run in runs.items() if read[run] != expected] == []
    conditions = CONDITIONS[name]
    at_rest = spark.createDataFrame(rows, frame.drop("run").schema)
    [matching] = at_rest.select(*(f.count_if(f.expr(condition)) for condition in conditions)).collect()
    assert [
        condition for condition, count in zip(conditions, matching, strict=True) if count in (0, FEW)
    ] == []
    filtered = (
        frame.where(condition).select("run", f.lit(condition).alias("condition")) for condition in conditions
    )
    counts = reduce(DataFrame.union, filtered).groupBy("condition", "run").count().collect()
    assert {(condition, run): count for condition, run, count in counts} == {
        (condition, run): count
        for condition, count in zip(conditions, matching, strict=True)
        for run in runs.values()
    }


def bodies_of(rows: pa.Table) -> dict[str, bytes]:
    """The rows in every way of writing them that the gateway accepts, by name of the way."""
    bodies = {way: write(rows) for way, write in ways_to_write().items()}
    sound = written(rows, row_group_size=FEW // 4)
    bodies |= {way: forged(sound, change) for way, change in REWRITTEN.items()}
    booleans = [field.name for field in rows.schema if field.type == pa.bool_()]
    for page in ("1.0", "2.0") if booleans else ():
        options = {"use_dictionary": False, "column_encoding": dict.fromkeys(booleans, "RLE")}
        way = f"booleans in RLE, pages {page}"
        bodies[way] = written(rows, data_page_version=page, **options)
        [group] = pq.ParquetFile(pa.BufferReader(bodies[way])).metadata.to_dict()["row_groups"]
        encodings = {column["path_in_schema"]: column["encodings"] for column in group["columns"]}
        assert {encodings[name] for name in booleans} == {("RLE",)}
    return bodies


def landed(landing: Path, table: str, run: str, body: bytes) -> Path:
    path = landing / f"table={table}" / "shard=0" / f"run={run}" / "chunk-00000.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(body)
    return path


def counted_by_run(frame: DataFrame) -> dict[str, Counter[tuple[Any, ...]]]:
    counts: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for run, *cells in map(dict.values, frame.toArrow().to_pylist()):
        counts[run][tuple(cells)] += 1
    return counts


def test_the_session_does_not_filter_by_page_indexes_and_bloom_filters(spark, tmp_path):
    """The gateway refuses such files. Chunks that were accepted by earlier versions may still have them."""
    rows = pa.table({"item_id": [1, 2], "item_name": ["kopi", "teh"]}, TABLES["menu_items"].schema)
    indexed = written(rows, write_page_index=True)
    index = slice(*span(indexed, lambda chunk: chunk, 6, 7))
    wrong_index = indexed[: index.start] + indexed[index].replace(b"teh", b"kop") + indexed[index.stop :]
    blooming = written(rows, bloom_filter_options={"item_name": {"ndv": 2}})
    _, end = span(blooming, lambda chunk: chunk[3].value, 14, 15)
    wrong_bloom = blooming[: end - BLOOM_BYTES] + bytes(BLOOM_BYTES) + blooming[end:]
    for run, sound, wrong in (("index", indexed, wrong_index), ("bloom", blooming, wrong_bloom)):
        assert sound != wrong
        path = landed(tmp_path, "menu_items", run, wrong)
        frame = read_table(spark, str(tmp_path), TABLES["menu_items"], [str(path)])
        assert [row["item_id"] for row in frame.where("item_name = 'teh'").collect()] == [2], run


def span(body: bytes, part: Callable[[Struct], Struct], offset: int, length: int) -> tuple[int, int]:
    """The beginning and the end of a part of the file to which the struct of `item_name` refers."""
    offsets: list[int] = []

    def look(footer: Struct) -> None:
        [group] = row_groups(footer)
        fields = part(group[1].value[1][1])
        offsets.extend([fields[offset].value, fields[offset].value + fields[length].value])

    forged(body, look)
    start, end = offsets
    return start, end


def partials_of(pipeline, run):
    """Rows by kind; each table of a run is one chunk here, so that no row is split between tasks."""
    rows_by_kind = {}
    for partial in pipeline.registry.partials(run):
        kind = kind_of(partial.path)
        layout = PartialLayout(partial_plan(kind))
        rows = pq.read_table(pipeline.home.path / KEYS.partials / partial.path, partitioning=None).to_pylist()
        kept = [*layout.kept.values()]
        rows_by_kind[kind] = Counter(
            (
                *(row[name] for name in kept),
                *(summed(row, layout, aggregate) for aggregate in layout.aggregates),
            )
            for row in rows
        )
    return rows_by_kind


def summed(row, layout, aggregate):
    """A sum is in one of two columns: without statistics it is unknown whether 64 bits are enough."""
    wide = row.get(layout.wide.get(aggregate))
    return row[layout.aggregates[aggregate]] if wide is None else int(wide)

"""What the gateway accepts, Spark can read: chunks as written now and before, and what others may send."""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunked_sales import NAMES, Chunk, in_normal_form, plain
from plans import KINDS, partial_plan
from pyspark.sql import functions as f

from catalog_tables import TABLES
from kopitiam.contracts.api import PARQUET
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.tables import Kind, Table
from kopitiam.gateway.examination import Finding, Order, examine
from kopitiam.gateway.parquet_format import CODECS, ENCODINGS
from kopitiam.landing.layout import KEYS
from kopitiam.landing.writer import encode
from kopitiam.pipeline.compiler.partials import PartialLayout
from kopitiam.pipeline.partials import kind_of
from kopitiam.pipeline.tables import read_table

MANY, SOME = 60_000, 3_000  # rows, with as many distinct amounts


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
            (f"sale {n}", n % 3 + 1, draw.choice([None, 1, 2, 3]), f"{amount / 10_000:.4f}", time)
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
    schema = pa.schema([pa.field(each.name, each.type) for each in rows.schema])
    return pa.Table.from_arrays(rows.columns, schema=schema)


def ways_to_write() -> dict[str, Callable[[pa.Table], bytes]]:
    """Every codec with every version of pages and of the format, with and without dictionaries; and more."""
    codecs = [codec.lower().replace("uncompressed", "none") for codec in CODECS]
    ways: dict[str, Callable[[pa.Table], bytes]] = {}
    for codec, page, version, is_encoded in itertools.product(
        codecs, ("1.0", "2.0"), ("1.0", "2.6"), (False, True)
    ):
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
    }


def test_what_the_gateway_accepts_spark_reads(make_pipeline, spark, tmp_path):
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
        found = Counter(map(tuple, frame.select("run", *columns).collect()))
        rows = in_normal_form(table, NAMES[table]).to_pylist()
        wanted = [row for row in rows if filtered is None or row["user_id"] in (1, 3)]
        assert found == Counter((run, *row.values()) for run in runs.values() for row in wanted), table
    pipeline.finish(runs["as the client writes it"])
    assert pipeline.answers(runs["as the client writes it"]) == plain(chunks)


def partials_of(pipeline, run):
    """Rows by kind; each table of a run is one chunk here, so that no row is split between tasks."""
    found = {}
    for partial in pipeline.registry.partials(run):
        kind = kind_of(partial.path)
        layout = PartialLayout(partial_plan(kind))
        rows = pq.read_table(pipeline.home.path / KEYS.partials / partial.path, partitioning=None).to_pylist()
        kept = [*layout.kept.values()]
        found[kind] = Counter(
            (*(row[name] for name in kept), *(summed(row, layout, each) for each in layout.aggregates))
            for row in rows
        )
    return found


def summed(row, layout, aggregate):
    """A sum stands in one of two columns: files without statistics do not tell that 64 bits are enough."""
    wide = row.get(layout.wide.get(aggregate))
    return row[layout.aggregates[aggregate]] if wide is None else int(wide)

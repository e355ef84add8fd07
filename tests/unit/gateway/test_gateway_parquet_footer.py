"""Spark would skip rows by a forged footer, so the gateway refuses it, also where Arrow does not see it."""

import io
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forged_footers import (
    BINARY,
    I32,
    I64,
    STRUCT,
    Change,
    Field,
    Struct,
    all_of,
    column_chunks,
    converted_type_of,
    forged,
    row_groups,
    size_of_row_groups,
    statistics_of,
    varint,
    with_footer,
    without_column_orders,
    write_struct,
    written_by,
    zigzag,
)
from kopitiam.contracts.api import PARQUET
from kopitiam.gateway.examination import Finding, Order, examine
from kopitiam.gateway.parquet_footer import MAX_FOOTER_BYTES, Unsound, decode_footer
from kopitiam.questions.layout import LAYOUT

ITEMS = LAYOUT["menu_items"].normal_form(LAYOUT["menu_items"].by_name)
UNTRUSTED = b"parquet-mr version 1.7.0"  # Arrow shows no statistics of its texts
ROWS = pa.table(
    {
        "item_id": [1, 2, 3],
        "item_name": ["kopi", "latte", "teh"],
        "category": ["hot", None, "é"],
        "price": [10, None, -30],
        "is_seasonal": [True, True, None],
        "available_from": [date(2024, 1, 1), None, date(1, 1, 1)],
        "available_to": pa.array([None, None, None], pa.date32()),
    },
    ITEMS.schema,
)


def long(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def body(rows: pa.Table = ROWS, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **({"store_schema": False} | options))
    return sink.getvalue()


def finding(tmp_path: Path, content: bytes) -> Finding:
    path = tmp_path / "body"
    path.write_bytes(content)
    return examine(Order(str(path), PARQUET, "menu_items", list(ITEMS.schema.names), "", "", 1 << 26, 1000))


def only_deprecated(least: bytes, greatest: bytes) -> dict[str, bytes | None]:
    return {"min": least, "max": greatest, "min_value": None, "max_value": None}


LYING_STATISTICS: dict[str, tuple[str, Change]] = {
    "greatest text": ("item_name", statistics_of("item_name", max_value=b"tef")),
    "greatest text, a prefix of it": ("item_name", statistics_of("item_name", max_value=b"te")),
    "least text": ("item_name", statistics_of("item_name", min_value=b"kopia")),
    "greatest text by signed bytes": ("category", statistics_of("category", max_value=b"hot")),
    "greatest boolean": ("is_seasonal", statistics_of("is_seasonal", min_value=b"\0", max_value=b"\0")),
    "greatest boolean in the deprecated field": (
        "is_seasonal",
        statistics_of("is_seasonal", **only_deprecated(b"\0", b"\0")),
    ),
    "nulls of a text": ("category", statistics_of("category", null_count=0)),
    "nulls of a text that has none": ("item_name", statistics_of("item_name", null_count=3)),
    "nulls of a boolean": ("is_seasonal", statistics_of("is_seasonal", null_count=3)),
    "nulls of an amount": ("price", statistics_of("price", null_count=0)),
    "nulls of an empty column": ("available_to", statistics_of("available_to", null_count=2)),
    "negative nulls": ("price", statistics_of("price", null_count=-1)),
    "greatest id in the deprecated field": (
        "item_id",
        statistics_of("item_id", **only_deprecated(long(1), long(2))),
    ),
    "greatest id in the deprecated field, one new field": (
        "item_id",
        statistics_of("item_id", min=long(1), max=long(2), max_value=None),
    ),
    "greatest id without column orders": (
        "item_id",
        all_of(without_column_orders, statistics_of("item_id", max_value=long(2))),
    ),
    "equal texts in the deprecated field": (
        "item_name",
        statistics_of("item_name", **only_deprecated(b"latte", b"latte")),
    ),
    "greatest text of a writer that Arrow does not trust": (
        "item_name",
        all_of(written_by(UNTRUSTED), statistics_of("item_name", max_value=b"l")),
    ),
    "nulls of a writer that Arrow does not trust": (
        "item_name",
        all_of(written_by(UNTRUSTED), statistics_of("item_name", null_count=3)),
    ),
    "an id of seven bytes": ("item_id", statistics_of("item_id", **only_deprecated(bytes(7), long(9)))),
    "an id of nine bytes": ("item_id", statistics_of("item_id", **only_deprecated(bytes(9), long(9)))),
    "a boolean of no bytes": ("is_seasonal", statistics_of("is_seasonal", **only_deprecated(b"", b"\1"))),
}


@pytest.mark.parametrize("name", LYING_STATISTICS)
def test_statistics_that_would_lose_rows_are_refused(tmp_path: Path, name: str) -> None:
    column, change = LYING_STATISTICS[name]

    refusal = finding(tmp_path, forged(body(), change)).refusal

    assert refusal == f"{column}: the statistics in its footer do not fit its values"


def test_statistics_of_every_row_group_are_compared(tmp_path: Path) -> None:
    def change(footer: Struct) -> None:
        [*_, last] = column_chunks(footer, "item_name")
        last[12].value[6] = Field(BINARY, b"z")

    refusal = finding(tmp_path, forged(body(row_group_size=1), change)).refusal

    assert refusal == "item_name: the statistics in its footer do not fit its values"


def swapped_columns(footer: Struct) -> None:
    """Spark would read prices as ids."""
    [item], [price] = column_chunks(footer, "item_id"), column_chunks(footer, "price")
    item[3], price[3] = price[3], item[3]


MISLEADING: dict[str, tuple[str, Change]] = {
    "a row group beyond the end": ("wrong size of a row group", size_of_row_groups(1 << 40)),
    "a row group before the beginning": ("wrong size of a row group", size_of_row_groups(-(1 << 40))),
    "names of columns that are swapped": ("columns in another order", swapped_columns),
    "two annotations of a text": ("item_name: its two type ann", converted_type_of("item_name", 19)),
    "a bloom filter": (
        "item_name: bloom filters are not accepted",
        lambda footer: column_chunks(footer, "item_name")[0].update({14: Field(I64, 4)}),
    ),
    "a column index": (
        "item_id: page indexes are not accepted",
        lambda footer: row_groups(footer)[0][1].value[1][0].update({6: Field(I64, 4), 7: Field(I32, 9)}),
    ),
}


@pytest.mark.parametrize("name", MISLEADING)
def test_footers_that_mislead_spark_are_refused(tmp_path: Path, name: str) -> None:
    reason, change = MISLEADING[name]

    refusal = finding(tmp_path, forged(body(), change)).refusal

    assert reason in str(refusal)


def test_times_of_two_units_are_refused(tmp_path: Path) -> None:
    """Spark goes by the deprecated annotation, Arrow by the other one."""
    users = LAYOUT["users"].normal_form(["user_id", "registered_at"])
    rows = pa.table({"user_id": [1], "registered_at": pa.array([1_000_000]).cast(users.schema.types[1])})
    path = tmp_path / "users"
    order = Order(str(path), PARQUET, "users", ["user_id", "registered_at"], "", "", 1 << 20, 10)

    path.write_bytes(body(rows))
    assert examine(order) == Finding(rows=1)

    milliseconds = 9
    path.write_bytes(forged(body(rows), converted_type_of("registered_at", milliseconds)))
    assert examine(order).refusal == "registered_at: its two type annotations differ"


HONEST: dict[str, Change] = {
    "as written": lambda _: None,
    "shortened texts": statistics_of("item_name", min_value=b"k", max_value=b"tf"),
    "wide numbers": statistics_of("item_id", min_value=long(-9), max_value=long(9)),
    "wide booleans": statistics_of("is_seasonal", min_value=b"\0", max_value=b"\1"),
    "no null count": statistics_of("price", null_count=None),
    "a bound that stands alone": statistics_of("item_id", min_value=None, min=None),
    "deprecated bounds": statistics_of("item_id", **only_deprecated(long(1), long(3))),
    "texts by signed bytes in the deprecated fields": statistics_of(
        "category", **only_deprecated("é".encode(), b"hot")
    ),
    "no column orders": without_column_orders,
    "a writer that Arrow does not trust": written_by(UNTRUSTED),
    "a field of a later version": lambda footer: footer.update({99: Field(STRUCT, {})}),
    "row groups without a size": lambda footer: [group.pop(6) for group in row_groups(footer)] and None,
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_footers_are_accepted(tmp_path: Path, name: str) -> None:
    assert finding(tmp_path, forged(body(), HONEST[name])) == Finding(rows=3)


def test_a_chunk_without_rows_is_accepted(tmp_path: Path) -> None:
    assert finding(tmp_path, body(ROWS.slice(0, 0))) == Finding(rows=0)


def footer_of(content: bytes) -> bytes:
    return content[len(content) - 8 - int.from_bytes(content[-8:-4], "little") : -8]


def test_a_footer_that_says_something_twice_is_refused(tmp_path: Path) -> None:
    """One decoder keeps the first value, another one the last."""
    content = body()
    again = write_struct({3: Field(I64, 3)})  # the number of rows, behind all other fields
    twice = footer_of(content)[:-1] + bytes([I64]) + zigzag(3) + again[1:]

    assert "malformed" in str(finding(tmp_path, with_footer(content, twice)).refusal)


def test_field_numbers_and_figures_that_decoders_cut_off_are_refused() -> None:
    long_number = bytes([I64]) + varint((3 + (1 << 16)) << 1) + zigzag(3) + b"\0"
    large_figure = bytes([3 << 4 | I32]) + varint(1 << 33) + b"\0"
    endless_figure = bytes([3 << 4 | I64]) + b"\xff" * 1000 + b"\0"
    for footer in (long_number, large_figure, endless_figure):
        with pytest.raises(Unsound, match="malformed"):
            decode_footer(footer)


@pytest.mark.parametrize("length", [0, 1, 10, 100, 300])
def test_a_footer_that_is_cut_off_is_malformed(length: int) -> None:
    footer = footer_of(body())
    decode_footer(footer)
    with pytest.raises(Unsound, match="malformed"):
        decode_footer(footer[:length])


def test_structs_in_structs_are_bounded() -> None:
    with pytest.raises(Unsound, match="malformed"):
        decode_footer(bytes([1 << 4 | STRUCT]) * 10_000)


def test_a_footer_is_bounded(tmp_path: Path) -> None:
    note = Field(STRUCT, {1: Field(BINARY, b"note"), 2: Field(BINARY, bytes(MAX_FOOTER_BYTES))})
    content = forged(body(), lambda footer: footer.update({5: Field(9, (STRUCT, [note.value]))}))

    assert "a footer of" in str(finding(tmp_path, content).refusal)

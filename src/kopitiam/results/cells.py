"""Values of answers as exact text: single cells for people, whole columns for CSV and JSON files.

How long texts are shortened to fit a page or a chart is in `names`.
"""

import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import AnswerColumn

EMPTY = "empty"  # shown in place of a null
FIGURES = frozenset({Kind.COUNT, Kind.MONEY, Kind.NUMBER})  # kinds that can be drawn to scale
MAX_SHOWN = 400  # characters of a text from outside
Value = str | int | bool | Decimal | date | datetime | None
_LEAST_DECIMALS = 2


def ringgit(amount: Decimal | str) -> str:
    """`RM 12,055,387.76`: exact, with at least two decimals. Answer files keep the plain form."""
    number = Decimal(amount)
    whole, _, decimals = f"{number.copy_abs():f}".partition(".")
    decimals = decimals.rstrip("0").ljust(_LEAST_DECIMALS, "0")
    return f"{'-' if number < 0 else ''}RM {int(whole):,}.{decimals}"


def shorten(text: str, most: int = MAX_SHOWN) -> str:
    """The text, cut to `most` characters with an ellipsis at the end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain_text(column: pa.Array) -> pa.Array:
    """The column as CSV cells before quoting: `75.0`, never `75.0000`, and times with the decimals that they
    have; null as an empty text."""
    if pa.types.is_timestamp(column.type):
        text = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
        return pc.replace_substring_regex(text, r"\.0+$|(\.\d+?)0+$", r"\1").fill_null("")
    text = column.cast(pa.string())
    if pa.types.is_decimal(column.type) and column.type.scale:
        text = pc.replace_substring_regex(text, r"(\.\d+?)0+$", r"\1")
    return text.fill_null("")


def csv_lines(columns: list[pa.Array]) -> pa.Array:
    """CSV lines without line ends. A single empty cell is quoted, since readers skip blank lines."""
    lines = pc.binary_join_element_wise(*(_csv_cell(plain_text(column)) for column in columns), ",")
    return pc.if_else(pc.equal(lines, ""), '""', lines) if len(columns) == 1 else lines


def json_lines(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One JSON object for each row, with amounts as exact decimal numbers."""
    pairs = [
        pc.binary_join_element_wise(pa.scalar(json.dumps(name) + ":"), _json_value(column), "")
        for name, column in zip(names, columns, strict=True)
    ]
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*pairs, ","), "}", "")


def _csv_cell(text: pa.Array) -> pa.Array:
    needs_quotes = pc.match_substring_regex(text, r'[",\r\n]')
    if not pc.any(needs_quotes).as_py():
        return text
    doubled = pc.replace_substring(text, '"', '""')
    return pc.if_else(needs_quotes, pc.binary_join_element_wise('"', doubled, '"', ""), text)


def _json_value(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_temporal(column.type):
        text = pa.array(
            [json.dumps(value, ensure_ascii=False) for value in plain_text(column).to_pylist()], pa.string()
        )
    else:
        text = plain_text(column)
    return pc.if_else(column.is_null(), "null", text)


def cell_text(column: AnswerColumn, value: Value) -> str:
    """The value with all its digits: `RM 6,415.4412`, `1,009`, `1990-01-01`.

    Whole numbers have separators only in measures, since a key may be a year.
    """
    match value:
        case None:
            return EMPTY
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.isoformat(" ", "seconds")
        case Decimal() | int():
            return _figure(column, Decimal(value))
        case _:
            return str(value)


def _figure(column: AnswerColumn, value: Decimal) -> str:
    if column.kind is Kind.MONEY:
        return ringgit(value)
    if column.kind is Kind.NUMBER:  # at least one decimal, as in the answer files: `2.0`, `0.3333`
        whole, _, decimals = f"{value:,f}".partition(".")
        return f"{whole}.{decimals.rstrip('0') or '0'}"
    return f"{int(value):,}" if column.role == "measure" else str(int(value))

"""Columns of an answer as text, whole columns at a time: exact amounts, CSV quoting, JSON escapes."""

import json

import pyarrow as pa
import pyarrow.compute as pc

MAX_SHOWN = 400  # characters of a text from outside


def shorten(text: str, most: int = MAX_SHOWN) -> str:
    """The text; if it is longer than `most` characters, its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain_text(column: pa.Array) -> pa.Array:
    """As it stands in a CSV cell before quoting; `75.0`, never `75.0000`; a null is empty."""
    text = column.cast(pa.string())
    if pa.types.is_decimal(column.type) and column.type.scale:
        text = pc.replace_substring_regex(text, r"(\.\d+?)0+$", r"\1")
    return text.fill_null("")


def csv_lines(columns: list[pa.Array]) -> pa.Array:
    """Lines without their ends. A single empty cell is quoted: readers skip blank lines."""
    lines = pc.binary_join_element_wise(*(_csv_cell(plain_text(column)) for column in columns), ",")
    return pc.if_else(pc.equal(lines, ""), '""', lines) if len(columns) == 1 else lines


def json_lines(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One object a row; amounts are written as exact decimal numbers."""
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
            [json.dumps(value, ensure_ascii=False) for value in column.cast(pa.string()).to_pylist()]
        )
    else:
        text = plain_text(column)
    return pc.if_else(column.is_null(), "null", text)

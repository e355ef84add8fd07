"""The allowed spellings of a cell, and its conversion to the type at rest. All other spellings are rejected.

A pattern must match before Arrow's number parser is used: Arrow reads `5e-40` as 0.
"""

from collections.abc import Iterator
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kopitiam.contracts.money import DECIMALS, DIGITS
from kopitiam.contracts.tables import AT_REST, MAX_TEXT_CHARACTERS, Column, Kind

_ONE_DECIMAL = pa.decimal128(38, 1)
_MONEY = pa.decimal128(38, DECIMALS)
_WHOLE = DIGITS - 1
_PATTERNS = {
    Kind.ID: rf"^[ \t]*\d{{1,{_WHOLE}}}(\.0{{0,15}})?[ \t]*$",
    Kind.COUNT: rf"^[ \t]*[-+]?\d{{1,{_WHOLE}}}(\.0{{0,15}})?[ \t]*$",
    Kind.MONEY: (
        rf"^[ \t]*[-+]?(\d{{1,{DIGITS - DECIMALS}}}(\.\d{{0,{DECIMALS}}}0{{0,12}})?"
        rf"|\.\d{{1,{DECIMALS}}}0{{0,12}})[ \t]*$"
    ),
    Kind.INSTANT: r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d$",
    Kind.DATE: r"^\d{4}-\d\d-\d\d$",
    Kind.BOOLEAN: r"^(?i:true|false|1|0)$",
}
_EXPECTED = {
    Kind.TEXT: f"a text of at most {MAX_TEXT_CHARACTERS:,} characters",
    Kind.ID: "a whole number",
    Kind.COUNT: "a whole number",
    Kind.MONEY: f"an amount of at most {DECIMALS} decimals below 10^{DIGITS - DECIMALS}",
    Kind.INSTANT: "a time like 2024-01-31 22:59:59",
    Kind.DATE: "a date like 1988-09-25",
    Kind.BOOLEAN: "True or False",
}


def convert(column: Column, cells: pa.Array) -> pa.Array:
    """Return the cells in the type at rest. Raises ArrowInvalid if any of them is bad."""
    if cells.null_count and not column.is_optional:
        raise pa.ArrowInvalid(f"{column.name} is empty")
    if isinstance(cells, pa.DictionaryArray):
        return _parse(column.kind, cells.dictionary).take(cells.indices)
    return _parse(column.kind, cells)


def bad_cells(column: Column, cells: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the cells that `convert` rejects."""
    bad = np.zeros(len(cells), dtype=bool)
    if column.kind in _PATTERNS:
        matching = pc.match_substring_regex(cells, _PATTERNS[column.kind]).fill_null(False)
        bad = ~matching.to_numpy(zero_copy_only=False)
    bad[cells.is_null().to_numpy(zero_copy_only=False)] = not column.is_optional
    matching_places = np.flatnonzero(~bad)
    rejected = list(_rejected(column, cells.take(pa.array(matching_places)), 0))
    bad[matching_places[rejected]] = True
    return bad


def reason(column: Column, cell: str | None) -> str:
    """Return the text that says why a cell is rejected."""
    if cell is None:
        return f"{column.name} is empty"
    shown = cell if len(cell) <= 40 else cell[:37] + "..."
    return f"{column.name} {shown!r} is not {_EXPECTED[column.kind]}"


def _parse(kind: Kind, texts: pa.Array) -> pa.Array:
    match kind:
        case Kind.ID | Kind.COUNT:
            _require_pattern(kind, texts)
            return _integers(texts, _ONE_DECIMAL, 10)
        case Kind.MONEY:
            _require_pattern(kind, texts)
            return _integers(texts, _MONEY, 1)
        case Kind.INSTANT:
            # Arrow would read `2024-01-31` as midnight.
            _require_length(texts, len("2024-01-31 22:59:59"))
            return _from_year_one(texts.cast(pa.timestamp("s"))).cast(pa.timestamp("us")).cast(AT_REST[kind])
        case Kind.DATE:
            _require_length(texts, len("1988-09-25"))
            return _from_year_one(texts.cast(AT_REST[kind]))
        case Kind.BOOLEAN:
            _require_pattern(kind, texts)
            return texts.cast(AT_REST[kind])
        case Kind.TEXT:
            if is_text_too_long(texts):
                raise pa.ArrowInvalid(f"not {_EXPECTED[kind]}")
            return texts
        case Kind.NUMBER | Kind.HALF:
            raise AssertionError(f"no column of a file is a {kind.value}")


def is_text_too_long(texts: pa.Array) -> bool:
    """Return whether a text has more than `MAX_TEXT_CHARACTERS` code points.

    Bytes are counted first, because that is much faster.
    """
    most_bytes = pc.max(pc.binary_length(texts)).as_py() or 0
    if most_bytes <= MAX_TEXT_CHARACTERS:
        return False
    return bool(pc.max(pc.utf8_length(texts)).as_py() > MAX_TEXT_CHARACTERS)


def _require_pattern(kind: Kind, texts: pa.Array) -> None:
    if pc.all(pc.match_substring_regex(texts, _PATTERNS[kind])).as_py() is False:
        raise pa.ArrowInvalid(f"not {_EXPECTED[kind]}")


def _require_length(texts: pa.Array, length: int) -> None:
    spread = pc.min_max(pc.binary_length(texts)).as_py()
    if {spread["min"], spread["max"]} - {length, None}:
        raise pa.ArrowInvalid(f"not {length} characters")


def _from_year_one(times: pa.Array) -> pa.Array:
    """Reject the year 0, which Arrow accepts and Python does not have."""
    first = pc.min(times)
    if first.is_valid and pc.less(first, pa.scalar(date.min, pa.date32()).cast(times.type)).as_py():
        raise pa.ArrowInvalid("before the year 1")
    return times


def _integers(texts: pa.Array, decimal: pa.DataType, divisor: int) -> pa.Array:
    """Return the unscaled values: the low words of Arrow's 128-bit integers, as the patterns bound them."""
    try:
        decimals = texts.cast(decimal)
    except pa.ArrowInvalid:
        decimals = pc.utf8_trim(texts, " \t").cast(decimal)
    if not len(decimals):
        return pa.array([], pa.int64())
    words = np.frombuffer(decimals.buffers()[1], np.int64).reshape(-1, 2)
    low = words[decimals.offset : decimals.offset + len(decimals), 0]
    absent = decimals.is_null().to_numpy(zero_copy_only=False) if decimals.null_count else None
    return pa.array(low // divisor, pa.int64(), mask=absent)


def _rejected(column: Column, cells: pa.Array, offset: int) -> Iterator[int]:
    """Yield the positions of cells that do not convert; found by halving, which is fast if they are few."""
    try:
        convert(column, cells)
    except pa.ArrowInvalid:
        if len(cells) == 1:
            yield offset
            return
        half = len(cells) // 2
        yield from _rejected(column, cells[:half], offset)
        yield from _rejected(column, cells[half:], offset + half)

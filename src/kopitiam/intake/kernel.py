"""The source of the compiled parser of clean CSV blocks, and its compiler. `clean_blocks` loads and calls it.

Numba is needed here only, and `kopi warm` imports this module: a run neither compiles nor loads Numba.

The parser knows the usual spellings of each kind of cell, quoted or not. At any other byte it gives up, and
Arrow reads the block instead: a cell that is wrong, a spelling that is rare, a row with too few fields. What
it accepts, Arrow accepts too, with the same value.

No read goes beyond the block: its last byte is a newline, at which every loop over bytes ends, and parsers
of cells with a fixed length compare it with the end of the block first.
"""

import llvmlite.binding as llvm
import numpy as np
from numba import carray, cfunc, njit, types  # type: ignore[attr-defined]

from kopitiam.contracts.money import DECIMALS, DIGITS
from kopitiam.contracts.uuids import DIGIT_VALUES, LENGTH, NO_DIGIT
from kopitiam.intake.clean_blocks import (
    BOOLEAN,
    COUNT,
    DATE,
    FUNCTION,
    GAVE_UP,
    ID,
    INSTANT,
    MONEY,
    SKIPPED,
    TEXT,
    UUID,
)

_NEWLINE, _RETURN, _QUOTE, _DOT, _MINUS, _DASH, _COLON, _SPACE, _T = b'\n\r".--: T'
_0, _9 = b"09"
_MONEY_WHOLE, _WHOLE = DIGITS - DECIMALS, DIGITS - 1  # most digits before the decimal point
_POWERS = np.array([10**decimals for decimals in range(DECIMALS + 1)], np.int64)
_MONTHS_OF_30_DAYS = (4, 6, 9, 11)
_EPOCH = 719_469  # days from 1 March of the year 0 to 1 January 1970, and one
_NO_DAY = -_EPOCH - 1_000
_BYTES, _NUMBERS = types.CPointer(types.uint8), types.CPointer(types.int64)

_inlined = njit(nogil=True, error_model="numpy", forceinline=True)


@_inlined
def _byte(data, at):
    """An unsigned index is not tested for being negative, which takes a third off the whole time."""
    return np.int64(data[np.uint64(at)])


@_inlined
def _is_end(byte, separator):
    return byte in (separator, _NEWLINE, _RETURN, _QUOTE)


@_inlined
def _skip(data, at, separator):
    """Return the position of the next byte that ends a text. Within quotes, the separator is a quote."""
    while not _is_end(_byte(data, at), separator):
        at += 1
    return at


@_inlined
def _digits(data, at):
    """Return the value of a run of digits, which may be empty or overflow, and the position after it."""
    value = 0
    digit = _byte(data, at) - _0
    while 0 <= digit <= 9:
        value = 10 * value + digit
        at += 1
        digit = _byte(data, at) - _0
    return value, at


@_inlined
def _whole(data, at):
    """`17272`, `17272.` or `17272.0`."""
    value, end = _digits(data, at)
    if not 1 <= end - at <= _WHOLE:
        return 0, GAVE_UP
    if _byte(data, end) == _DOT:
        end += 1
        if _byte(data, end) == _0:
            end += 1
    return value, end


@_inlined
def _money(data, at):
    """`75` or `75.075`, in ten-thousandths."""
    value, end = _digits(data, at)
    if not 1 <= end - at <= _MONEY_WHOLE:
        return 0, GAVE_UP
    decimals = 0
    if _byte(data, end) == _DOT:
        fraction, fraction_end = _digits(data, end + 1)
        decimals = fraction_end - end - 1
        if decimals > DECIMALS:
            return 0, GAVE_UP
        value = value * _POWERS[np.uint64(decimals)] + fraction
        end = fraction_end
    return value * _POWERS[np.uint64(DECIMALS - decimals)], end


@_inlined
def _signed(data, at, kind):
    is_negative = _byte(data, at) == _MINUS
    if is_negative:
        at += 1
    value, end = _money(data, at) if kind == MONEY else _whole(data, at)
    return (-value if is_negative else value), end


@_inlined
def _two_digits(data, at):
    """Return the value of two digits, or a number that makes every sum with others negative."""
    tens, ones = _byte(data, at) - _0, _byte(data, at + 1) - _0
    if 0 <= tens <= 9 and 0 <= ones <= 9:
        return 10 * tens + ones
    return -100_000


@_inlined
def _day(data, at):
    """`1988-09-25` as days since 1970."""
    if _byte(data, at + 4) != _DASH or _byte(data, at + 7) != _DASH:
        return _NO_DAY
    year = 100 * _two_digits(data, at) + _two_digits(data, at + 2)
    month, day = _two_digits(data, at + 5), _two_digits(data, at + 8)
    if year < 1 or not (1 <= month <= 12 and 1 <= day <= 31):
        return _NO_DAY
    if day == 31 and month in _MONTHS_OF_30_DAYS:
        return _NO_DAY
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month == 2 and (day > 29 or (day == 29 and not is_leap)):
        return _NO_DAY
    if month <= 2:  # years that begin in March have their leap day at the end
        year, month = year - 1, month + 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - _EPOCH


@_inlined
def _date(data, at):
    end = at + 10
    if end >= len(data):
        return 0, GAVE_UP
    day = _day(data, at)
    return day, (GAVE_UP if day == _NO_DAY else end)


@_inlined
def _instant(data, at):
    """`2024-01-31 22:59:59`, with a space or a T, as microseconds since 1970."""
    end = at + 19
    if end >= len(data) or _byte(data, at + 10) not in (_SPACE, _T):
        return 0, GAVE_UP
    if _byte(data, at + 13) != _COLON or _byte(data, at + 16) != _COLON:
        return 0, GAVE_UP
    day = _day(data, at)
    hour, minute, second = _two_digits(data, at + 11), _two_digits(data, at + 14), _two_digits(data, at + 17)
    if day == _NO_DAY or not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return 0, GAVE_UP
    return (((day * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000, end


@_inlined
def _spells(data, at, letters):
    """Whether these letters are there, in any case."""
    if at + len(letters) >= len(data):
        return False
    is_spelled = True
    for offset in range(len(letters)):
        is_spelled &= (_byte(data, at + offset) | 0x20) == letters[offset]
    return is_spelled


_TRUE, _FALSE = tuple(b"true"), tuple(b"false")


@_inlined
def _boolean(data, at):
    if _spells(data, at, _TRUE):
        return 1, at + len(_TRUE)
    if _spells(data, at, _FALSE):
        return 0, at + len(_FALSE)
    digit = _byte(data, at) - _0
    return digit, (at + 1 if 0 <= digit <= 1 else GAVE_UP)


@_inlined
def _hexadecimal(data, at, end, value, digits):
    """Append hexadecimal digits to a value. Also returns all bits of their values, and of `digits` before."""
    for place in range(at, end):
        digit = DIGIT_VALUES[_byte(data, place)]
        value = value << 4 | digit
        digits |= digit
    return value, digits


@_inlined
def _uuid(data, at):
    """A canonical UUID as two numbers, and the position after it."""
    end = at + LENGTH
    if end >= len(data):
        return 0, 0, GAVE_UP
    if _byte(data, at + 8) != _DASH or _byte(data, at + 13) != _DASH:
        return 0, 0, GAVE_UP
    if _byte(data, at + 18) != _DASH or _byte(data, at + 23) != _DASH:
        return 0, 0, GAVE_UP
    high, digits = _hexadecimal(data, at, at + 8, 0, 0)
    high, digits = _hexadecimal(data, at + 9, at + 13, high, digits)
    high, digits = _hexadecimal(data, at + 14, at + 18, high, digits)
    low, digits = _hexadecimal(data, at + 19, at + 23, 0, digits)
    low, digits = _hexadecimal(data, at + 24, end, low, digits)
    return high, low, (end if digits < NO_DIGIT else GAVE_UP)


@_inlined
def _number(data, at, kind):
    """Return the value of a cell as it is at rest, and the position after it, or GAVE_UP."""
    if kind == INSTANT:
        return _instant(data, at)
    if kind == ID:
        return _whole(data, at)
    if kind in (MONEY, COUNT):
        return _signed(data, at, kind)
    if kind == DATE:
        return _date(data, at)
    if kind == BOOLEAN:
        return _boolean(data, at)
    return 0, GAVE_UP


@_inlined
def _store_text(data, at, end_byte, columns, place, row):  # noqa: PLR0917
    """Store a cell as text and return the position after it."""
    _, _, offsets, texts = columns
    end = _skip(data, at, end_byte)
    offset = offsets[place, row]
    for position in range(end - at):
        texts[np.uint64(place), np.uint64(offset + position)] = _byte(data, at + position)
    offsets[place, row + 1] = offset + end - at
    return end


@_inlined
def _store_uuid(data, at, end_byte, columns, place, text_place, row):  # noqa: PLR0917
    """Store a cell as two numbers if it is a UUID, else as text. Returns the position after it."""
    numbers, is_valid, offsets, _ = columns
    high, low, end = _uuid(data, at)
    is_uuid = end != GAVE_UP and _is_end(_byte(data, end), end_byte)
    is_valid[place, row] = is_valid[place + 1, row] = is_uuid
    if not is_uuid:
        return _store_text(data, at, end_byte, columns, text_place, row)
    numbers[place, row], numbers[place + 1, row] = high, low
    offsets[text_place, row + 1] = offsets[text_place, row]
    return end


@_inlined
def _store_cell(data, at, end_byte, field, columns, row):  # noqa: PLR0917
    """Store a cell and return the position after it, or GAVE_UP."""
    kind, place, text_place, is_optional = field
    is_empty = _is_end(_byte(data, at), end_byte)
    if is_empty and not is_optional:
        return GAVE_UP
    if kind == SKIPPED:
        return _skip(data, at, end_byte)
    if kind == TEXT:
        return _store_text(data, at, end_byte, columns, text_place, row)
    if kind == UUID:
        return _store_uuid(data, at, end_byte, columns, place, text_place, row)
    numbers, is_valid, _, _ = columns
    is_valid[place, row] = not is_empty
    if not is_empty:
        numbers[place, row], at = _number(data, at, kind)
    return at


@_inlined
def _cell_end(data, at, is_quoted, separator, is_last):
    """Return the position after what follows a cell: its closing quote, and a separator or a line end."""
    if is_quoted:
        if _byte(data, at) != _QUOTE:
            return GAVE_UP
        at += 1
    if not is_last:
        return at + 1 if _byte(data, at) == separator else GAVE_UP
    if _byte(data, at) == _RETURN:
        at += 1
    return at + 1 if _byte(data, at) == _NEWLINE else GAVE_UP


@_inlined
def _parse(data, separator, fields, columns):
    """Parse all rows and return their number, or GAVE_UP.

    `fields` has for each field of a row its kind, its place among the numbers and among the texts, and
    whether its cells may be empty. `columns` are numbers, which of them are not empty, the ends of the texts,
    and their bytes.
    """
    at, row, most_rows = 0, 0, columns[1].shape[1]
    while at < len(data):
        if _byte(data, at) in (_NEWLINE, _RETURN):  # Arrow skips blank lines, too
            at += 1
            continue
        if row == most_rows:
            return GAVE_UP
        for number in range(len(fields)):
            field = (fields[number, 0], fields[number, 1], fields[number, 2], fields[number, 3])
            is_quoted = _byte(data, at) == _QUOTE
            if is_quoted:
                at += 1
            at = _store_cell(data, at, _QUOTE if is_quoted else separator, field, columns, row)
            if at == GAVE_UP:
                return GAVE_UP
            at = _cell_end(data, at, is_quoted, separator, number == len(fields) - 1)
            if at == GAVE_UP:
                return GAVE_UP
        row += 1
    return row


_SIGNATURE = types.int64(
    _BYTES, types.int64, types.int64, _NUMBERS, types.int64,  # data, separator, fields
    _NUMBERS, _BYTES, types.int64,  # columns of numbers
    types.CPointer(types.int32), _BYTES, types.int64,  # columns of texts
    types.int64,
)  # fmt: skip


def _parse_at(  # noqa: PLR0917 - a C function has pointers and sizes
    data, size, separator, fields, field_count, numbers, is_valid, number_count, offsets, texts, text_count,
    most_rows,
):  # fmt: skip
    columns = (
        carray(numbers, (number_count, most_rows)),
        carray(is_valid, (number_count, most_rows)),
        carray(offsets, (text_count, most_rows + 1)),
        carray(texts, (text_count, size)),
    )
    return _parse(carray(data, (size,)), separator, carray(fields, (field_count, 4)), columns)


def compile_kernel() -> bytes:
    """Return an object file for any processor of this machine's kind. It refers to no other library.

    Takes some ten seconds.
    """
    function = cfunc(_SIGNATURE, error_model="numpy")(_parse_at)
    module = llvm.parse_assembly(function.inspect_llvm())
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic")
    for name in [each.name for each in module.functions if not each.is_declaration]:
        if name != function.native_name:
            module.get_function(name).linkage = "internal"
    module.get_function(function.native_name).name = FUNCTION
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes.getModulePassManager().run(module, passes)  # removes Numba's calls for errors, which never happen
    foreign = [each.name for each in module.functions if each.is_declaration]
    assert all(name.startswith("llvm.") for name in foreign), foreign
    return bytes(machine.emit_object(module))

"""Decodes the footer of a Parquet file into the parts that Spark uses and Arrow hides.

Spark decides by the footer which row groups it reads. Arrow hides some of the fields that Spark uses: the
deprecated bounds of statistics, all statistics of writers that it does not trust, the size of a row group.
A forged field that Arrow hides would lose rows without an error, so the gateway decodes the footer itself.

The footer is a struct in Thrift's compact protocol; the field numbers are those of `parquet.thrift`. The
decoder refuses anything ambiguous, such as a field that occurs twice.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

MAX_FOOTER_BYTES = 8 << 20  # 64 row groups of the table with the most texts, all of them 4,096 bytes, fit
_END = 8  # bytes after the footer: its size and a magic number
_MAX_DEPTH = 32
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
_BITS = {_I16: 16, _I32: 32, _I64: 64}

_Struct = dict[int, Any]
_Value = TypeVar("_Value")


class Unsound(Exception):
    """The gateway refuses the body; the text says why."""


@dataclass(frozen=True)
class Statistics:
    """The statistics of one column in one row group. Bounds are the least and the greatest value."""

    nulls: int | None = None
    bounds: tuple[bytes, bytes] | None = None
    deprecated_bounds: tuple[bytes, bytes] | None = None  # Spark uses them if the other bounds are absent


@dataclass(frozen=True)
class RowGroup:
    """One row group. A Spark task reads the row groups whose `middle` byte lies in its part of the file."""

    columns: tuple[str, ...]
    middle: int
    statistics: tuple[Statistics, ...]  # in the order of `columns`


@dataclass(frozen=True)
class Footer:
    """The columns with their deprecated type annotations, and the row groups."""

    converted_types: Mapping[str, int | None]
    groups: tuple[RowGroup, ...]


def read_footer(path: Path) -> Footer:
    """Decode the footer of a file that Arrow has opened. Raises Unsound if it is malformed."""
    with path.open("rb") as file:
        end = file.seek(-_END, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        if size > min(MAX_FOOTER_BYTES, end):
            raise Unsound(f"a footer of {size:,} bytes; at most {MAX_FOOTER_BYTES:,} are accepted")
        file.seek(end - size)
        return decode_footer(file.read(size))


def decode_footer(data: bytes) -> Footer:
    """Decode the struct `FileMetaData`. Raises Unsound if it is malformed."""
    try:
        metadata = _Decoder(data).struct()
    except IndexError:
        raise _malformed() from None
    columns = _structs(metadata, 2)[1:]  # the first element is the root of the schema
    return Footer(
        converted_types={_text(column, 4): _optional(column, 6, int) for column in columns},
        groups=tuple(map(_row_group, _structs(metadata, 4))),
    )


def _row_group(group: _Struct) -> RowGroup:
    columns = [_required(chunk, 3, dict) for chunk in _structs(group, 1)]
    if not columns:
        raise _malformed()
    sizes = sum(_required(column, 7, int) for column in columns)
    total = _optional(group, 6, int)
    return RowGroup(
        columns=tuple(_path(column) for column in columns),
        middle=_first_byte(columns[0]) + (sizes if total is None else total) // 2,
        statistics=tuple(_statistics(_optional(column, 12, dict) or {}) for column in columns),
    )


def _first_byte(column: _Struct) -> int:
    data, dictionary = _required(column, 9, int), _optional(column, 11, int)
    return data if dictionary is None else min(data, dictionary)


def _path(column: _Struct) -> str:
    path = _required(column, 3, list)
    if len(path) != 1 or not isinstance(path[0], bytes):
        raise _malformed()
    return path[0].decode(errors="replace")


def _statistics(fields: _Struct) -> Statistics:
    return Statistics(
        nulls=_optional(fields, 3, int), bounds=_bounds(fields, 6, 5), deprecated_bounds=_bounds(fields, 2, 1)
    )


def _bounds(fields: _Struct, least: int, greatest: int) -> tuple[bytes, bytes] | None:
    """Return both bounds, or None: Spark ignores a single one."""
    low, high = _optional(fields, least, bytes), _optional(fields, greatest, bytes)
    return None if low is None or high is None else (low, high)


def _structs(fields: _Struct, number: int) -> list[_Struct]:
    values = _required(fields, number, list)
    if not all(isinstance(value, dict) for value in values):
        raise _malformed()
    return values


def _text(fields: _Struct, number: int) -> str:
    return _required(fields, number, bytes).decode(errors="replace")


def _required(fields: _Struct, number: int, kind: type[_Value]) -> _Value:
    value = _optional(fields, number, kind)
    if value is None:
        raise _malformed()
    return value


def _optional(fields: _Struct, number: int, kind: type[_Value]) -> _Value | None:
    value = fields.get(number)
    if value is not None and not isinstance(value, kind):
        raise _malformed()
    return value


def _malformed() -> Unsound:
    return Unsound("cannot be read: its footer is malformed")


class _Decoder:
    """Thrift's compact protocol. Raises Unsound, or IndexError where the data ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, depth: int = 0) -> _Struct:
        fields: _Struct = {}
        number = 0
        while header := self._byte():
            kind, step = header & 0x0F, header >> 4
            number = number + step if step else self._integer(_I16)
            if number in fields or not 0 < number < 1 << 15 or depth > _MAX_DEPTH:
                raise _malformed()
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _BITS:
            return self._integer(kind)
        if kind == _BINARY:
            return self._bytes(self._varint(31))
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _LIST:
            return self._list(depth + 1)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        raise _malformed()  # no field of Parquet has another type

    def _list(self, depth: int) -> list[Any]:
        header = self._byte()
        size = header >> 4
        if size == 0x0F:
            size = self._varint(31)
        if size > len(self._data) - self._at or depth > _MAX_DEPTH:
            raise _malformed()
        return [self._value(header & 0x0F, depth) for _ in range(size)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise _malformed()
        return self._data[self._at - size : self._at]

    def _integer(self, kind: int) -> int:
        value = self._varint(_BITS[kind])
        return (value >> 1) ^ -(value & 1)

    def _varint(self, bits: int) -> int:
        """Read a number. Surplus bits are malformed: other decoders cut them off in different ways."""
        value = shift = 0
        while (byte := self._byte()) > 0x7F and shift < 64:
            value |= (byte & 0x7F) << shift
            shift += 7
        value |= byte << shift
        if value >> bits:
            raise _malformed()
        return value

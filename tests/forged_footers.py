"""Rewrites the footer of a Parquet file field by field, to make footers that no writer would write.

A struct is a dictionary from field number to `Field`. The numbers are those of `parquet.thrift`; the protocol
is Thrift's compact one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MAGIC = b"PAR1"


@dataclass
class Field:
    """One value with its type. A list is a pair: the type of its elements, and the elements."""

    kind: int
    value: Any


Struct = dict[int, Field]
Change = Callable[[Struct], None]
_STATISTICS = {"max": 1, "min": 2, "null_count": 3, "max_value": 5, "min_value": 6}


def forged(body: bytes, change: Change) -> bytes:
    """The file with its footer changed in place by `change`, which gets the struct `FileMetaData`."""
    size = int.from_bytes(body[-8:-4], "little")
    start = len(body) - 8 - size
    footer = _Reader(body[start:-8]).struct()
    change(footer)
    return with_footer(body, write_struct(footer))


def with_footer(body: bytes, footer: bytes) -> bytes:
    """The file with these bytes in place of its footer."""
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    return body[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC


def column_chunks(footer: Struct, name: str) -> list[Struct]:
    """The structs `ColumnMetaData` of a column, one for each row group."""
    metadata = [chunk[3].value for group in row_groups(footer) for chunk in group[1].value[1]]
    return [each for each in metadata if each[3].value[1] == [name.encode()]]


def row_groups(footer: Struct) -> list[Struct]:
    """The structs `RowGroup`."""
    groups: list[Struct] = footer[4].value[1]
    return groups


def statistics_of(name: str, **values: bytes | int | None) -> Change:
    """Sets fields in the statistics of a column, or removes those that are None."""

    def change(footer: Struct) -> None:
        for chunk in column_chunks(footer, name):
            fields = chunk.setdefault(12, Field(STRUCT, {})).value
            for key, value in values.items():
                fields.pop(_STATISTICS[key], None)
                if value is not None:
                    kind = BINARY if isinstance(value, bytes) else I64
                    fields[_STATISTICS[key]] = Field(kind, value)

    return change


def converted_type_of(name: str, converted: int) -> Change:
    """Sets the deprecated type annotation of a column."""

    def change(footer: Struct) -> None:
        for element in footer[2].value[1]:
            if element[4].value == name.encode():
                element[6] = Field(I32, converted)

    return change


def size_of_row_groups(size: int) -> Change:
    def change(footer: Struct) -> None:
        for group in row_groups(footer):
            group[6] = Field(I64, size)

    return change


def written_by(application: bytes) -> Change:
    return lambda footer: footer.update({6: Field(BINARY, application)})


def without_column_orders(footer: Struct) -> None:
    footer.pop(7, None)


def all_of(*changes: Change) -> Change:
    def change(footer: Struct) -> None:
        for each in changes:
            each(footer)

    return change


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while header := self._byte():
            kind, delta = header & 15, header >> 4
            number = number + delta if delta else self._zigzag()
            fields[number] = Field(kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind))
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                header = self._byte()
                size = header >> 4 if header >> 4 < 15 else self._varint()
                return header & 15, [self._value(header & 15) for _ in range(size)]
            case 12:
                return self.struct()
        raise AssertionError(kind)

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def write_struct(fields: Struct) -> bytes:
    written, last = b"", 0
    for number, field in sorted(fields.items()):
        kind = field.kind
        if kind in (TRUE, FALSE):
            kind = TRUE if field.value else FALSE
        delta = number - last
        written += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + zigzag(number)
        last = number
        if kind not in (TRUE, FALSE):
            written += _written(field.kind, field.value)
    return written + b"\0"


def _written(kind: int, value: Any) -> bytes:
    match kind:
        case 1 | 2 | 3:
            return bytes([value])
        case 4 | 5 | 6:
            return zigzag(value)
        case 8:
            return varint(len(value)) + value
        case 9 | 10:
            element, values = value
            size = len(values)
            head = bytes([size << 4 | element]) if size < 15 else bytes([0xF0 | element]) + varint(size)
            return head + b"".join(_written(element, each) for each in values)
        case 12:
            return write_struct(value)
    raise AssertionError(kind)


def varint(value: int) -> bytes:
    written = b""
    while value > 127:
        written += bytes([value & 127 | 128])
        value >>= 7
    return written + bytes([value])


def zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)

"""Tables in normal form: the kinds of columns, and their types at rest.

`questions.layout` lists the tables and columns; `questions.question_set` derives those that a run needs.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import pyarrow as pa

from kopitiam.contracts.uuids import HIGH, LOW

CHUNK_ROWS = 131_072
MAX_TEXT_CHARACTERS = 1_024  # Unicode code points of a text cell
MAX_TEXT_BYTES = 4 * MAX_TEXT_CHARACTERS  # in UTF-8
MAX_REJECTED_CHARACTERS = 4_096  # that are kept of a rejected row


class Kind(Enum):
    """The meaning of the cells of a column."""

    TEXT = "text"
    ID = "id"  # `17272` or `17272.0`, not negative
    COUNT = "count"  # a whole number
    MONEY = "money"  # a decimal number of at most four decimals, at rest in ten-thousandths
    INSTANT = "instant"  # `2024-01-31 22:59:59`, local time of the chain, kept as if UTC
    DATE = "date"  # `1988-09-25`
    BOOLEAN = "boolean"  # `True` or `False`
    NUMBER = "number"  # a ratio: at most four decimals, in ten-thousandths; never a column of a file
    HALF = "half"  # of a UUID, 64 bits; never a column of a file


AT_REST: dict[Kind, pa.DataType] = {
    Kind.TEXT: pa.string(),
    Kind.ID: pa.int64(),
    Kind.COUNT: pa.int64(),
    Kind.MONEY: pa.int64(),
    Kind.INSTANT: pa.timestamp("us", tz="UTC"),
    Kind.DATE: pa.date32(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.HALF: pa.int64(),
}


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    is_optional: bool = False  # an empty cell is a null, not a bad row
    repeats: bool = False  # few distinct values: worth a dictionary, in reading and at rest
    is_uuid: bool = False  # texts that are usually UUIDs, which are two numbers at rest

    @property
    def halves(self) -> tuple[str, str]:
        """The columns with the two numbers of a UUID."""
        return self.name + HIGH, self.name + LOW


@dataclass(frozen=True)
class Table:
    """A table in normal form. At rest, and on the way there, it may have the columns of `stored_as`."""

    name: str
    columns: tuple[Column, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, AT_REST[c.kind], nullable=c.is_optional) for c in self.columns])

    @cached_property
    def packed(self) -> "Table":
        """The form that holds any rows: every text is either a text or the two numbers of a UUID."""
        return self.stored_as({name for c in self.columns for name in (c.name, *c.halves)})

    def stored_as(self, names: Set[str]) -> "Table":
        """The form of a chunk that has these columns: UUIDs are texts or two numbers, or some of each."""
        columns: list[Column] = []
        for column in self.columns:
            if not column.is_uuid or names.isdisjoint(column.halves):
                columns.append(column)
                continue
            has_texts = column.name in names
            if has_texts:
                columns.append(replace(column, is_optional=True))
            is_optional = column.is_optional or has_texts
            columns += [Column(half, Kind.HALF, is_optional) for half in column.halves]
        return Table(self.name, tuple(columns))


@dataclass(frozen=True)
class Rejected:
    """A row that does not parse, with its place and the reason."""

    file: str
    line: int
    reason: str
    row: str

"""Tables in normal form: the kinds of columns, and their types at rest.

`questions.layout` lists the tables and columns; `questions.question_set` derives those that a run needs.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pyarrow as pa

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


AT_REST: dict[Kind, pa.DataType] = {
    Kind.TEXT: pa.string(),
    Kind.ID: pa.int64(),
    Kind.COUNT: pa.int64(),
    Kind.MONEY: pa.int64(),
    Kind.INSTANT: pa.timestamp("us", tz="UTC"),
    Kind.DATE: pa.date32(),
    Kind.BOOLEAN: pa.bool_(),
}


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    is_optional: bool = False  # an empty cell is a null, not a bad row
    repeats: bool = False  # few distinct values: worth a dictionary, in reading and at rest


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, AT_REST[c.kind], nullable=c.is_optional) for c in self.columns])


@dataclass(frozen=True)
class Rejected:
    """A row that does not parse, with its place and the reason."""

    file: str
    line: int
    reason: str
    row: str

"""Tables in normal form: what the cells of a column mean, and their types at rest.

Which tables and columns there are is in `questions.layout`; which of them a run sends follows from what it
asks (`questions.question_set`).
"""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pyarrow as pa

CHUNK_ROWS = 131_072
MAX_TEXT_CHARACTERS = 1_024  # Unicode code points of a text cell
MAX_TEXT_BYTES = 4 * MAX_TEXT_CHARACTERS  # in UTF-8
MAX_REJECTED_CHARACTERS = 4_096  # of a rejected row that are kept


class Kind(Enum):
    """What the cells of a column mean."""

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
    """A row that does not parse and was set aside."""

    file: str
    line: int
    reason: str
    row: str

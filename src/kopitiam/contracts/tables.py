"""The five tables in normal form: the columns that the questions need, and their types at rest.

Columns that no question needs are left out on the way in. The optional tables of the public layout
may stand beside these five and are ignored.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pyarrow as pa

CHUNK_ROWS = 131_072
MAX_TEXT_CHARACTERS = 1_024  # Unicode code points of a text cell
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


TRANSACTIONS = Table(
    "transactions",
    (
        Column("transaction_id", Kind.TEXT),
        Column("store_id", Kind.ID, repeats=True),
        Column("user_id", Kind.ID, is_optional=True),
        Column("final_amount", Kind.MONEY, repeats=True),
        Column("created_at", Kind.INSTANT),
    ),
)
TRANSACTION_ITEMS = Table(
    "transaction_items",
    (
        Column("item_id", Kind.ID, repeats=True),
        Column("quantity", Kind.COUNT, repeats=True),
        Column("subtotal", Kind.MONEY, repeats=True),
        Column("created_at", Kind.INSTANT),
    ),
)
USERS = Table("users", (Column("user_id", Kind.ID), Column("birthdate", Kind.DATE, is_optional=True)))
STORES = Table("stores", (Column("store_id", Kind.ID), Column("store_name", Kind.TEXT)))
MENU_ITEMS = Table("menu_items", (Column("item_id", Kind.ID), Column("item_name", Kind.TEXT)))

TABLES: dict[str, Table] = {
    table.name: table for table in (STORES, MENU_ITEMS, USERS, TRANSACTIONS, TRANSACTION_ITEMS)
}

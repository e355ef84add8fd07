"""The public layout: every table and column that a question may name, and how tables refer to each other.

Facts are the tables that questions read row by row. The other tables give attributes by their id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kopitiam.contracts.tables import Column, Kind, Table


@dataclass(frozen=True)
class LayoutTable:
    """One table. A table of attributes has its id in `key`; a fact has `references` instead.

    `label` is the attribute that shows the id if the table has no row with that id.
    """

    name: str
    columns: tuple[Column, ...]
    key: str = ""
    label: str = ""
    references: Mapping[str, str] = field(default_factory=dict)  # column → table

    @property
    def is_fact(self) -> bool:
        return not self.key

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def normal_form(self, names: Iterable[str]) -> Table:
        """The table with these columns only, in the order of the layout."""
        selected = frozenset(names)
        return Table(self.name, tuple(column for column in self.columns if column.name in selected))


def _columns(text: str) -> tuple[Column, ...]:
    """Parses `name:kind` for each column. `?`: cells may be empty. `*`: few distinct values. `#`: UUIDs."""
    columns = []
    for entry in text.split():
        name, _, kind = entry.partition(":")
        flags = ("?" in kind, "*" in kind, "#" in kind)
        columns.append(Column(name, Kind(kind.rstrip("?*#")), *flags))
    return tuple(columns)


LAYOUT: dict[str, LayoutTable] = {  # in the order of sending
    table.name: table
    for table in (
        LayoutTable(
            "stores",
            _columns(
                "store_id:id store_name:text street:text? postal_code:text? city:text? state:text?"
                " latitude:text? longitude:text?"  # text keeps every digit
            ),
            key="store_id",
            label="store_name",
        ),
        LayoutTable(
            "menu_items",
            _columns(
                "item_id:id item_name:text category:text? price:money? is_seasonal:boolean?"
                " available_from:date? available_to:date?"
            ),
            key="item_id",
            label="item_name",
        ),
        LayoutTable(
            "users",
            _columns("user_id:id gender:text?* birthdate:date? registered_at:instant?"),
            key="user_id",
        ),
        LayoutTable(
            "payment_methods",
            _columns("method_id:id method_name:text category:text?"),
            key="method_id",
            label="method_name",
        ),
        LayoutTable(
            "vouchers",
            _columns(
                "voucher_id:id voucher_code:text discount_type:text? discount_value:money?"
                " valid_from:date? valid_to:date?"
            ),
            key="voucher_id",
            label="voucher_code",
        ),
        LayoutTable(
            "transactions",
            _columns(
                "transaction_id:text# store_id:id* payment_method_id:id?* voucher_id:id?* user_id:id?"
                " original_amount:money?* discount_applied:money?* final_amount:money* created_at:instant"
            ),
            references={
                "store_id": "stores",
                "payment_method_id": "payment_methods",
                "voucher_id": "vouchers",
                "user_id": "users",
            },
        ),
        LayoutTable(
            "transaction_items",
            _columns(
                "transaction_id:text# item_id:id* quantity:count* unit_price:money?* subtotal:money*"
                " created_at:instant"
            ),
            references={"item_id": "menu_items"},
        ),
    )
}
FACTS: tuple[str, ...] = tuple(name for name, table in LAYOUT.items() if table.is_fact)

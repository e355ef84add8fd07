"""Rows of the profile `wild`: every cell is valid, and nothing else is guaranteed.

Final amounts and subtotals are bounded so that no sum of rows, in any order, exceeds a signed 64-bit integer:
at the largest scale, 290 million items of at most 10^6 add up to 2.9 * 10^18 ten-thousandths, and the few
amounts at the bounds of the normal form to 2 * 10^18 more. Columns that the catalog does not read have no
such bound; `wild_cells` draws them.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.random import Generator
from numpy.typing import NDArray

from kopitiam.contracts.money import UNITS
from kopitiam.questions.layout import LAYOUT
from kopitiam.synthetic import exports
from kopitiam.synthetic.exports import Written, write_month, write_text
from kopitiam.synthetic.months import DAY, FIRST_MONTH, FIRST_YEAR, HOUR, MONTHS, Month, month_start
from kopitiam.synthetic.shapes import (
    AMOUNT_VARIETIES,
    Customers,
    Ids,
    Instants,
    Order,
    Quantities,
    Spread,
    Texts,
    Unmatched,
    WildShape,
)
from kopitiam.synthetic.wild_cells import (
    EDGE_INSTANTS,
    LARGEST_COUNT,
    LARGEST_ID,
    LARGEST_UNITS,
    WildCells,
    transaction_id,
    wild_name,
)

ONLY_MONTH = 2024 * 12 + 2 - 1 - (FIRST_YEAR * 12 + FIRST_MONTH - 1)  # February 2024, a leap month

EDGE_CLOCKS = (0, 6 * HOUR - 1, 6 * HOUR, 6 * HOUR + 1, 23 * HOUR - 1, 23 * HOUR, 23 * HOUR + 1, DAY - 1)
EDGE_AMOUNTS = (
    750_000,
    749_999,
    0,
    -1,
    -750_000,
    750_001,
    1,
    750_750,
)  # in units; 75 is the first question's
BOUND_AMOUNTS = (LARGEST_UNITS, -LARGEST_UNITS, LARGEST_UNITS, -LARGEST_UNITS)
BOUND_COUNTS = (LARGEST_COUNT, -LARGEST_COUNT) * 4
EDGE_BIRTHDATES = ("0001-01-01", "1900-02-28", "2000-02-29", "9999-12-31", "")
CUSTOMERS_IN_TURN = 5
SKEWED_SHARE = 0.99
UNSOLD = 500_000_000  # records from this index on have ids that no sale has
ID_STRIDE = 9_999_999_967  # a prime: its multiples spread over the whole range without repetition
MISSING_EVERY = 3  # every third id is not in its table, with `Unmatched.SOME`
TWICE_EVERY = 5  # every fifth id is listed twice
WILD_GENDERS = 0.01  # share of users with a long or hostile gender: there may be millions of users

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class SmallTable:
    """A table in a single file."""

    text: str
    rows: int


@dataclass(frozen=True)
class WildSales:
    """All tables of one seed. `months` are the planned ones, or one month with the rows of all."""

    shape: WildShape
    seed: int
    months: list[Month]

    @classmethod
    def of_seed(cls, seed: int, planned: list[Month]) -> "WildSales":
        return cls.of_shape(WildShape.of_seed(seed), seed, planned)

    @classmethod
    def of_shape(cls, shape: WildShape, seed: int, planned: list[Month]) -> "WildSales":
        return cls(shape, seed, planned if shape.months == MONTHS else [_merged(planned)])

    def total_rows(self) -> dict[str, int]:
        return {name: table.rows for name, table in self._small_tables().items()} | {
            "users": sum(len(_listed(self.shape, month.users, month.users_before)) for month in self.months),
            "transactions": sum(month.transactions for month in self.months),
            "transaction_items": sum(month.items for month in self.months),
        }

    def write(self, out: Path) -> Iterator[Written]:
        for name, table in self._small_tables().items():
            yield write_text(out, name, table.text, table.rows)
        sales = items = 0
        for turn, month in enumerate(self.months):
            yield from self._write_month(out, month, turn, sales + np.arange(month.transactions), items)
            sales, items = sales + month.transactions, items + month.items

    def _write_month(
        self, out: Path, month: Month, turn: int, sales: Integers, items_before: int
    ) -> Iterator[Written]:
        """Write one month. `sales` are the numbers of its transactions, counted over all months."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(month.index, 1)))
        has_texts = self.shape.texts is not Texts.PLAIN
        yield write_month(out, "users", month.label, self._users(rng, month), has_texts)
        ids = self._transaction_ids(rng, month.transactions)
        transactions = self._transactions(rng, month, ids, turn, sales)
        yield write_month(out, "transactions", month.label, transactions, has_texts)
        items = self._items(rng, month, ids, turn, items_before + np.arange(month.items))
        yield write_month(out, "transaction_items", month.label, items, has_texts)

    def _small_tables(self) -> dict[str, SmallTable]:
        return {
            "stores": self._records("stores", "store", self.shape.stores),
            "menu_items": self._records("menu_items", "item", self.shape.items),
            "payment_methods": self._records("payment_methods", "method", self.shape.variety),
            "vouchers": self._records("vouchers", "voucher", self.shape.variety),
        }

    def _records(self, table: str, kind: str, count: int) -> SmallTable:
        listed = _listed(self.shape, count)
        named = []
        for index, identity in zip(listed.tolist(), _ids(self.shape, listed).tolist(), strict=True):
            named.append((identity, wild_name(self.shape.texts, kind, index)))
            if index % TWICE_EVERY == 1:
                named.append((identity, wild_name(self.shape.texts, kind, index + 1)))
        columns = LAYOUT[table].columns
        cells = self._cells(list(LAYOUT).index(table), 4)
        others = [cells.draw(column, len(named)).to_pylist() for column in columns[2:]]
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        writer.writerows((*identified, *rest) for identified, *rest in zip(named, *others, strict=True))
        return SmallTable(lines.getvalue(), len(named))

    def _cells(self, *key: int) -> WildCells:
        """Return a source of cells with its own seed, independent of the columns that the catalog reads."""
        return WildCells(self.shape, np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key)))

    def _transactions(
        self, rng: Generator, month: Month, ids: pa.Array, turn: int, number: Integers
    ) -> pa.Table:
        rows, shape = len(number), self.shape
        is_member = number % 100 >= shape.anonymous_percent
        cells, columns = self._cells(month.index, 3), LAYOUT["transactions"].by_name
        methods, vouchers = (_ids(shape, self._places(cells.rng, number, shape.variety)) for _ in range(2))
        table = pa.table(
            {
                "transaction_id": ids,
                "store_id": _ids(shape, self._places(rng, number, shape.stores)),
                "payment_method_id": pa.array(methods, mask=cells.empty(rows)),
                "voucher_id": exports.float_ids(vouchers, ~cells.empty(rows)),
                "user_id": exports.float_ids(_ids(shape, self._customers(rng, month, number)), is_member),
                "original_amount": cells.draw(columns["original_amount"], rows),
                "discount_applied": cells.draw(columns["discount_applied"], rows),
                "final_amount": exports.money(self._amounts(rng, number, turn)),
                "created_at": exports.instants(self._seconds(rng, month, turn, rows)),
            }
        )
        return self._in_order(rng, table)

    def _items(self, rng: Generator, month: Month, ids: pa.Array, turn: int, number: Integers) -> pa.Table:
        rows, shape = len(number), self.shape
        subtotals = exports.money(self._amounts(rng, number, turn))
        unit_price = LAYOUT["transaction_items"].by_name["unit_price"]
        table = pa.table(
            {
                "transaction_id": ids.take(pa.array(np.arange(rows) % len(ids))),
                "item_id": _ids(shape, self._places(rng, number, shape.items)),
                "quantity": self._quantities(rng, turn, rows),
                "unit_price": self._cells(month.index, 5).draw(unit_price, rows),
                "subtotal": subtotals,
                "created_at": exports.instants(self._seconds(rng, month, turn, rows)),
            }
        )
        return self._in_order(rng, table)

    def _users(self, rng: Generator, month: Month) -> pa.Table:
        listed = _listed(self.shape, month.users, month.users_before)
        birthdates = rng.integers(-30_000, 15_000, size=len(listed)).astype("datetime64[D]").astype(str)
        birthdates[: len(EDGE_BIRTHDATES)] = EDGE_BIRTHDATES[: len(listed)]
        cells, columns = self._cells(month.index, 6), LAYOUT["users"].by_name
        table = pa.table(
            {
                "user_id": _ids(self.shape, listed),
                "gender": cells.draw(columns["gender"], len(listed), WILD_GENDERS),
                "birthdate": pa.array(birthdates.tolist(), pa.string()),
                "registered_at": cells.draw(columns["registered_at"], len(listed)),
            }
        )
        return table.take(pa.array(rng.permutation(len(listed))))

    def _transaction_ids(self, rng: Generator, rows: int) -> pa.Array:
        """Return UUIDs, and some other texts, which repeat every month, so that ids are not unique."""
        uuids = exports.random_uuids(rng, rows)
        if self.shape.texts is Texts.PLAIN:
            return uuids
        texts = (transaction_id(self.shape.texts, index) for index in range(rows))
        return pa.array([text or uuid for text, uuid in zip(texts, uuids.to_pylist(), strict=True)])

    def _places(self, rng: Generator, number: Integers, count: int) -> Integers:
        match self.shape.spread:
            case Spread.EVEN:
                return np.asarray(number % count)
            case Spread.RANDOM:
                return rng.integers(0, count, size=len(number))
            case Spread.SKEWED:
                is_rare = rng.random(len(number)) > SKEWED_SHARE
                return np.where(is_rare, rng.integers(0, count, size=len(number)), 0)

    def _customers(self, rng: Generator, month: Month, number: Integers) -> Integers:
        match self.shape.customers:
            case Customers.ONE:
                return np.ones_like(number)
            case Customers.ONCE:
                return number
            case Customers.IN_TURN:
                return np.asarray(number % CUSTOMERS_IN_TURN)
            case Customers.ANY:
                return rng.integers(0, month.users_before + month.users, size=len(number))

    def _amounts(self, rng: Generator, number: Integers, turn: int) -> Integers:
        """Return the distinct amounts in turn, so that any chunk of that many rows has all of them."""
        variety = self.shape.amounts[turn % len(self.shape.amounts)]
        amounts = _distinct_amounts(self.seed, variety, self.shape.largest_amount)[number % variety]
        if variety > 1 and turn == 0:
            places = rng.permutation(len(number))[: len(BOUND_AMOUNTS)]
            amounts[places] = BOUND_AMOUNTS[: len(places)]
        return amounts

    def _quantities(self, rng: Generator, turn: int, rows: int) -> Integers:
        if self.shape.quantities is Quantities.ONES:
            return np.ones(rows, dtype=np.int64)
        quantities = rng.integers(-1, 4, size=rows)
        if self.shape.quantities is Quantities.BOUNDS and turn == 0:
            places = rng.permutation(rows)[: len(BOUND_COUNTS)]
            quantities[places] = BOUND_COUNTS[: len(places)]
        return quantities

    def _seconds(self, rng: Generator, month: Month, turn: int, rows: int) -> Integers:
        """Return seconds since 1970; the first month also has instants of other years."""
        if self.shape.instants is Instants.ANY:
            seconds = rng.integers(0, month.days * DAY, size=rows)
        else:
            day = rng.choice([0, month.days - 1], size=rows)
            seconds = day * DAY + rng.choice(EDGE_CLOCKS, size=rows)
        seconds = month_start(month) + seconds
        if turn == 0:
            edges = np.array(EDGE_INSTANTS, dtype="datetime64[s]").astype(np.int64)[:rows]
            seconds[: len(edges)] = edges
        return np.asarray(seconds, dtype=np.int64)

    def _in_order(self, rng: Generator, table: pa.Table) -> pa.Table:
        match self.shape.order:
            case Order.SORTED:
                return table.sort_by([("created_at", "ascending")])
            case Order.REVERSED:
                return table.sort_by([("created_at", "descending")])
            case Order.SHUFFLED:
                return table.take(pa.array(rng.permutation(table.num_rows)))


@lru_cache(maxsize=len(AMOUNT_VARIETIES))
def _distinct_amounts(seed: int, variety: int, largest_amount: int) -> Integers:
    """Return distinct amounts, the same in every month."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(variety, 2)))
    if variety == 1:
        return rng.choice(np.array(EDGE_AMOUNTS, dtype=np.int64), size=1)
    most = largest_amount * UNITS
    drawn = rng.integers(-most // 4, most, size=2 * variety)
    others = np.setdiff1d(drawn, EDGE_AMOUNTS)
    return np.concatenate([EDGE_AMOUNTS, rng.permutation(others)])[:variety]


def _merged(months: list[Month]) -> Month:
    return replace(
        months[ONLY_MONTH],
        transactions=sum(month.transactions for month in months),
        items=sum(month.items for month in months),
        users=sum(month.users for month in months),
        users_before=0,
    )


def _ids(shape: WildShape, index: Integers) -> Integers:
    match shape.ids:
        case Ids.SMALL:
            return index
        case Ids.BOUNDS:
            return np.where(index % 2, LARGEST_ID - index // 2, index // 2)
        case Ids.SPREAD:
            return np.asarray(index * ID_STRIDE % (LARGEST_ID + 1))


def _listed(shape: WildShape, count: int, first: int = 0) -> Integers:
    """Return the indexes of the records, from `first` on, that their table lists."""
    index = first + np.arange(count)
    match shape.unmatched:
        case Unmatched.NONE:
            return index
        case Unmatched.SOME:
            return np.asarray(index[index % MISSING_EVERY != 0])
        case Unmatched.ALL:
            return index + UNSOLD

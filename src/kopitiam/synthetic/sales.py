"""The rows of one month in the profile `real`: transactions, their items, and the users who register.

Items are drawn first; the amounts of transactions are sums of them, in whole units.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.random import Generator
from numpy.typing import NDArray

from kopitiam.synthetic import chain, exports
from kopitiam.synthetic.exports import instants
from kopitiam.synthetic.months import (
    MOST_ITEMS,
    Month,
    is_outside_opening_hours,
    month_start,
    opening_seconds,
    sale_seconds,
)

ITEMS_PER_TRANSACTION = (0.340, 0.338, 0.318, 0.004)  # of 1, 2, 3 and 4 items
MOST_QUANTITY = 3
ITEMS_AT_BOUNDS = 3  # with the largest quantity: about half of the sums reach the 75 of the first question
VOUCHER_SHARE = 0.04
ANONYMOUS_AT_FIRST, ANONYMOUS_AT_LAST = 0.90, 0.07

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Sales:
    transactions: pa.Table
    items: pa.Table


@dataclass(frozen=True)
class Baskets:
    """Item rows, one element per row, and how many of them each transaction has."""

    sizes: Integers
    item: Integers  # index in the menu
    quantity: Integers
    subtotal: Integers

    @property
    def amounts(self) -> Integers:
        first_items = np.cumsum(self.sizes) - self.sizes
        return np.add.reduceat(self.subtotal, first_items)


def month_sales(rng: Generator, month: Month) -> Sales:
    """Draw the transactions of a month and their items."""
    """Draw the transactions of a month and their items."""
    seconds = sale_seconds(rng, month)
    baskets = _fill_baskets(rng, month, is_outside_opening_hours(seconds))
    transaction_id = exports.random_uuids(rng, month.transactions)
    created_at = month_start(month) + seconds
    return Sales(
        _transactions(rng, month, transaction_id, baskets.amounts, created_at),
        _items(transaction_id, baskets, created_at),
    )


def _fill_baskets(rng: Generator, month: Month, is_at_bound: NDArray[np.bool_]) -> Baskets:
    sizes = rng.choice(MOST_ITEMS, size=month.transactions, p=ITEMS_PER_TRANSACTION) + 1
    sizes[is_at_bound] = ITEMS_AT_BOUNDS
    _correct_total(rng, sizes, month.items)
    item = rng.integers(0, chain.count(chain.MENU_ITEMS), size=month.items)
    quantity = rng.integers(1, MOST_QUANTITY + 1, size=month.items)
    quantity[np.repeat(is_at_bound, sizes)] = MOST_QUANTITY
    return Baskets(sizes, item, quantity, quantity * chain.prices()[item])


def _correct_total(rng: Generator, sizes: Integers, total: int) -> None:
    """Add or remove single items at random transactions until the total is right."""
    while lacking := total - int(sizes.sum()):
        has_room = sizes < MOST_ITEMS if lacking > 0 else sizes > 1
        candidates = np.flatnonzero(has_room)
        chosen = rng.choice(candidates, size=min(abs(lacking), len(candidates)), replace=False)
        sizes[chosen] += np.sign(lacking)


def _transactions(
    rng: Generator, month: Month, transaction_id: pa.Array, original: Integers, created_at: Integers
) -> pa.Table:
    rows = month.transactions
    store = rng.integers(0, chain.count(chain.STORES), size=rows)
    voucher = rng.integers(0, chain.count(chain.VOUCHERS), size=rows)
    has_voucher = rng.random(rows) < VOUCHER_SHARE
    discount = np.where(has_voucher, chain.discounts(voucher, original), 0)
    anonymous_share = ANONYMOUS_AT_FIRST + month.progress * (ANONYMOUS_AT_LAST - ANONYMOUS_AT_FIRST)
    is_member = rng.random(rows) >= anonymous_share
    return pa.table(
        {
            "transaction_id": transaction_id,
            "store_id": store + 1,
            "payment_method_id": rng.integers(1, chain.count(chain.PAYMENT_METHODS) + 1, size=rows),
            "voucher_id": exports.float_ids(voucher + 1, has_voucher),
            "user_id": exports.float_ids(_customers(rng, month, store), is_member),
            "original_amount": exports.money(original),
            "discount_applied": exports.money(discount),
            "final_amount": exports.money(original - discount),
            "created_at": exports.instants(created_at),
        }
    )


def _customers(rng: Generator, month: Month, store: Integers) -> Integers:
    """Draw customers: earlier ones buy more, and each store has its own, so that few of its top ones tie."""
    registered = month.users_before + month.users
    uniform = rng.random(month.transactions)
    rank = (registered * uniform * np.sqrt(uniform)).astype(np.int64)
    return np.asarray((rank * chain.count(chain.STORES) + store) % registered + 1, dtype=np.int64)


def _items(transaction_id: pa.Array, baskets: Baskets, created_at: Integers) -> pa.Table:
    owner = np.repeat(np.arange(len(baskets.sizes)), baskets.sizes)
    return pa.table(
        {
            "transaction_id": transaction_id.take(pa.array(owner)),
            "item_id": baskets.item + 1,
            "quantity": baskets.quantity,
            "unit_price": exports.money(chain.prices()[baskets.item]),
            "subtotal": exports.money(baskets.subtotal),
            "created_at": exports.instants(created_at[owner]),
        }
    )


FIRST_BIRTHDATE = np.datetime64("1950-01-01", "D")
LAST_BIRTHDATE = np.datetime64("2012-12-31", "D")


def registrations(rng: Generator, month: Month) -> pa.Table:
    """Draw the users who register in a month. Ids follow the order of registration, rows do not."""
    user_id = np.arange(month.users_before + 1, month.users_before + month.users + 1)
    registered = month_start(month) + np.sort(opening_seconds(rng, month, month.users))
    birthdate = rng.integers(FIRST_BIRTHDATE.astype(int), LAST_BIRTHDATE.astype(int) + 1, size=month.users)
    gender = pa.DictionaryArray.from_arrays(
        pa.array(rng.integers(0, 2, size=month.users, dtype=np.int8)), pa.array(["female", "male"])
    )
    order = rng.permutation(month.users)
    return pa.table(
        {
            "user_id": user_id[order],
            "gender": gender,
            "birthdate": pa.array(birthdate.astype(np.int32)).cast(pa.date32()),
            "registered_at": instants(registered[order]),
        }
    )

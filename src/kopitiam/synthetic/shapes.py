"""The shape of data in the profile `wild`: one choice on each axis of difference from the real chain.

A seed determines one combination. Consecutive seeds take every choice of an axis, in random order, before
they repeat one, so that a few seeds in a row cover all choices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")

MANY = 10_000
AMOUNT_VARIETIES = (100_000, 10_000, 1_100, 1_000, 1)


class Profile(StrEnum):
    """The kind of data to generate."""

    REAL = "real"  # the proportions of the real chain
    WILD = "wild"  # anything that the normal form allows


class Ids(StrEnum):
    SMALL = "small"  # 0, 1, 2 and so on
    BOUNDS = "bounds"  # from both ends: 0, 10^17-1, 1, 10^17-2 and so on
    SPREAD = "spread"  # all over the range


class Texts(StrEnum):
    PLAIN = "plain"
    LONG = "long"  # up to 1,024 characters
    HOSTILE = "hostile"  # quotes, commas, newlines, formulas, marks of direction, any script


class Spread(StrEnum):
    """The distribution of sales over stores and items."""

    EVEN = "even"  # in turn, so that all sums tie
    RANDOM = "random"
    SKEWED = "skewed"  # nearly all at the first one


class Customers(StrEnum):
    ONE = "one"  # buys everything
    ONCE = "once"  # each buys once
    IN_TURN = "in_turn"  # five customers, equally often
    ANY = "any"  # any registered customer


class Unmatched(StrEnum):
    """How many ids of sales are missing from the tables of stores, items and users."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


class Instants(StrEnum):
    ANY = "any"  # any second of the month
    EDGES = "edges"  # the first and last seconds of opening hours and days only


class Order(StrEnum):
    """The order of the rows of a file by time."""

    SORTED = "sorted"
    REVERSED = "reversed"
    SHUFFLED = "shuffled"


class Quantities(StrEnum):
    ONES = "ones"
    SMALL = "small"  # -1 to 3
    BOUNDS = "bounds"  # the same, and a few of 10^17-1 with either sign


@dataclass(frozen=True)
class WildShape:
    """The choices that determine the data of one seed.

    `amounts` are counts of distinct amounts (and subtotals), used by the months in turn. A shape with more
    than one also has a few amounts at the bounds of the normal form; `largest_amount` bounds the rest.

    `variety` and `empty_percent` apply to columns that the catalog's questions do not read: the number of
    distinct values, also of payment methods and vouchers, and the share of empty cells.
    """

    stores: int
    items: int
    months: int
    amounts: tuple[int, ...]
    largest_amount: int
    anonymous_percent: int
    ids: Ids
    texts: Texts
    spread: Spread
    customers: Customers
    unmatched: Unmatched
    instants: Instants
    order: Order
    quantities: Quantities
    variety: int
    empty_percent: int

    @classmethod
    def of_seed(cls, seed: int) -> "WildShape":
        return cls(
            stores=_choose(seed, 0, (1, 7, MANY)),
            items=_choose(seed, 1, (1, 8, MANY)),
            months=_choose(seed, 2, (1, 24)),
            amounts=_choose(seed, 3, (*((variety,) for variety in AMOUNT_VARIETIES), AMOUNT_VARIETIES)),
            largest_amount=_choose(seed, 4, (200, 1_000_000)),
            anonymous_percent=_choose(seed, 5, (0, 50, 100)),
            ids=_choose(seed, 6, tuple(Ids)),
            texts=_choose(seed, 7, tuple(Texts)),
            spread=_choose(seed, 8, tuple(Spread)),
            customers=_choose(seed, 9, tuple(Customers)),
            unmatched=_choose(seed, 10, tuple(Unmatched)),
            instants=_choose(seed, 11, tuple(Instants)),
            order=_choose(seed, 12, tuple(Order)),
            quantities=_choose(seed, 13, tuple(Quantities)),
            variety=_choose(seed, 14, (1, 7, MANY)),
            empty_percent=_choose(seed, 15, (0, 1, 50, 99, 100)),
        )


def _choose(seed: int, axis: int, choices: Sequence[Choice]) -> Choice:
    """Choose by seed: each series of `len(choices)` seeds, from 0 on, takes every choice once."""
    series, position = divmod(seed, len(choices))
    order = np.random.default_rng([series, axis]).permutation(len(choices))
    return choices[int(order[position])]

"""The shape of a wild data set: one choice for each way in which sales may differ from the real chain's.

A seed stands for one combination. Consecutive seeds go through all choices of an axis before they repeat one,
in an order of their own, so that a few seeds in a row try every choice.
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
    """What generated data is like."""

    REAL = "real"  # the proportions of the real chain
    WILD = "wild"  # whatever the normal form allows


class Ids(StrEnum):
    SMALL = "small"  # 0, 1, 2 and so on
    BOUNDS = "bounds"  # from both ends: 0, 10^17-1, 1, 10^17-2 and so on
    SPREAD = "spread"  # all over the range


class Texts(StrEnum):
    PLAIN = "plain"
    LONG = "long"  # up to 1,024 characters
    HOSTILE = "hostile"  # quotes, commas, newlines, formulas, marks of direction, any script


class Spread(StrEnum):
    """How sales fall on stores and items."""

    EVEN = "even"  # in turn, and all sums tie
    RANDOM = "random"
    SKEWED = "skewed"  # nearly all on the first one


class Customers(StrEnum):
    ONE = "one"  # buys everything
    ONCE = "once"  # each buys once
    IN_TURN = "in_turn"  # five of them, as often as each other
    ANY = "any"  # any registered one


class Unmatched(StrEnum):
    """Which ids of sales are missing from the tables of stores, items and users."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


class Instants(StrEnum):
    ANY = "any"  # any second of the month
    EDGES = "edges"  # the first and last seconds of opening hours and days only


class Order(StrEnum):
    """How the rows of a file are sorted by time."""

    SORTED = "sorted"
    REVERSED = "reversed"
    SHUFFLED = "shuffled"


class Quantities(StrEnum):
    ONES = "ones"
    SMALL = "small"  # -1 to 3
    BOUNDS = "bounds"  # the same, and a few of 10^17-1 with either sign


@dataclass(frozen=True)
class WildShape:
    """One data set of the profile `wild`.

    `amounts` are distinct amounts (and subtotals), month by month in turn. A shape with more than one of them
    also has a few amounts at the bounds of the normal form; `largest_amount` bounds all others.

    `variety` and `empty_percent` are for columns that the catalog's questions do not read: the number of
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
    """Each run of `len(choices)` seeds, counted from 0, is a permutation of the choices."""
    turn, place = divmod(seed, len(choices))
    order = np.random.default_rng([turn, axis]).permutation(len(choices))
    return choices[int(order[place])]

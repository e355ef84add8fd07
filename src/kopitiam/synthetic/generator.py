"""Generates all tables, month by month, with one month in memory at a time.

The full size takes about twenty seconds on one core, so a worker pool is not needed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kopitiam.contracts.errors import ConfigError, InputError
from kopitiam.synthetic.chain import SMALL_TABLES, count
from kopitiam.synthetic.exports import Written, write_month, write_small_table
from kopitiam.synthetic.months import Month, plan
from kopitiam.synthetic.sales import month_sales, registrations
from kopitiam.synthetic.shapes import Profile, WildShape
from kopitiam.synthetic.wild import WildSales

Progress = Callable[[str, int, int], None]  # table, rows done, rows in total


@dataclass(frozen=True)
class Generated:
    """Counts of what was written: rows by table, bytes and files in total."""

    """Counts of what was written: rows by table, bytes and files in total."""

    rows: dict[str, int]
    bytes: int
    files: int
    shape: WildShape | None = None  # of the profile `wild`


def generate(
    out: Path,
    scale: float,
    seed: int,
    progress: Progress | None = None,
    *,
    profile: Profile = Profile.REAL,
) -> Generated:
    """Write the tables under `out`. The same profile, scale and seed give the same bytes.

    Raises ConfigError for a bad seed or scale, InputError if `out` is not a new or empty folder.
    """
    if seed < 0:
        raise ConfigError(f"seed {seed}: expected 0 or more")
    months = plan(scale)
    _require_empty(out)
    wild = WildSales.of_seed(seed, months) if profile is Profile.WILD else None
    totals = wild.total_rows() if wild else _total_rows(months)
    rows: Counter[str] = Counter()
    size = files = 0
    for written in wild.write(out) if wild else _write_all(out, seed, months):
        rows[written.table] += written.rows
        size += written.bytes
        files += 1
        if progress:
            progress(written.table, rows[written.table], totals[written.table])
    return Generated(dict(rows), size, files, wild.shape if wild else None)


def write_month_tables(out: Path, seed: int, month: Month) -> Iterator[Written]:
    """Write one month. Its seeds are its own, so its bytes do not depend on the months before."""
    month_seed = np.random.SeedSequence(seed, spawn_key=(month.index,))
    for_users, for_sales = map(np.random.default_rng, month_seed.spawn(2))
    yield write_month(out, "users", month.label, registrations(for_users, month))
    sales = month_sales(for_sales, month)
    yield write_month(out, "transactions", month.label, sales.transactions)
    yield write_month(out, "transaction_items", month.label, sales.items)


def _write_all(out: Path, seed: int, months: list[Month]) -> Iterator[Written]:
    for name in SMALL_TABLES:
        yield write_small_table(out, name)
    for month in months:
        yield from write_month_tables(out, seed, month)


def _total_rows(months: list[Month]) -> dict[str, int]:
    return {name: count(table) for name, table in SMALL_TABLES.items()} | {
        "users": sum(month.users for month in months),
        "transactions": sum(month.transactions for month in months),
        "transaction_items": sum(month.items for month in months),
    }


def _require_empty(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a new or empty folder")
    if out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty: name a new or empty folder, or remove its content")

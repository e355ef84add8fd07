"""Partial results at rest: which ones count. Each function is a part of a transaction."""

from collections.abc import Collection
from dataclasses import asdict

from sqlalchemy import Connection, delete, func, insert, select

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.runs import RunState
from kopitiam.registry.runs import get_run, locked_states
from kopitiam.registry.schema import partials


def list_partials(connection: Connection, run: str) -> list[Partial]:
    get_run(connection, run)
    return _of_run(connection, run)


def replace(connection: Connection, run: str, old: Collection[str], new: Partial) -> bool:
    state = locked_states(connection, [run]).get(run)
    if state not in (RunState.OPEN, RunState.SEALED):  # behind the barrier they are being read
        return False
    known = _of_run(connection, run)
    paths = {partial.path for partial in known}
    if new in known and paths.isdisjoint(old):
        return True
    if not paths.issuperset(old):
        return False
    connection.execute(delete(partials).where(partials.c.path.in_(old)))
    connection.execute(insert(partials).values(asdict(new)))
    return True


def paths_under(connection: Connection, prefix: str) -> set[str]:
    is_under = func.substr(partials.c.path, 1, len(prefix)) == prefix
    return set(connection.scalars(select(partials.c.path).where(is_under)))


def _of_run(connection: Connection, run: str) -> list[Partial]:
    of = partials.c
    query = select(of.run, of.path, of.level, of.rows).where(of.run == run)
    return [Partial(*row) for row in connection.execute(query.order_by(of.path))]

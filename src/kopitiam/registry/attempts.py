"""Attempts at the steps of a run that have begun and not ended well. Each function is a part of a
transaction.
"""

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, true, update

from kopitiam.contracts.batches import Attempt, Step
from kopitiam.registry.runs import locked_states
from kopitiam.registry.schema import attempts


def begin(
    connection: Connection, attempt: str, step: Step, names: Collection[str], *, node: str, now: float
) -> None:
    states = locked_states(connection, names)
    alive = [run for run, state in states.items() if not state.is_over]
    if alive:
        told = {"attempt": attempt, "step": step, "node": node, "begun_at": now}
        connection.execute(insert(attempts), [{"run": run, **told} for run in alive])


def give_back(connection: Connection, attempt: str) -> None:
    connection.execute(delete(attempts).where(attempts.c.attempt == attempt))


def end_badly(connection: Connection, attempt: str, reason: str) -> None:
    connection.execute(update(attempts).where(attempts.c.attempt == attempt).values(reason=reason))


def end_well(connection: Connection, names: Collection[str], step: Step, node: str | None = None) -> None:
    connection.execute(delete(attempts).where(_is_at(names, step, node)))


def list_attempts(
    connection: Connection, names: Collection[str], step: Step, node: str | None
) -> dict[str, list[Attempt]]:
    of = attempts.c
    query = select(of.run, of.attempt, of.reason).where(_is_at(names, step, node))
    found: dict[str, list[Attempt]] = defaultdict(list)
    for row in connection.execute(query.order_by(of.begun_at, of.attempt)):
        found[row.run].append(Attempt(row.attempt, row.reason))
    return dict(found)


def _is_at(names: Collection[str], step: Step, node: str | None) -> ColumnElement[bool]:
    is_of_node = true() if node is None else attempts.c.node == node
    return and_(attempts.c.run.in_(names), attempts.c.step == step, is_of_node)

"""Attempts at the steps of a run that have begun and not succeeded. They limit the retries of a step."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, true, update

from kopitiam.contracts.batches import Attempt, Step
from kopitiam.registry.records import Fence
from kopitiam.registry.runs import lock_states
from kopitiam.registry.schema import attempts
from kopitiam.registry.transactions import RegistryBase


class AttemptTransactions(RegistryBase):
    def begin_attempt(self, attempt: str, step: Step, runs: Iterable[str], fence: Fence) -> None:
        """Count an attempt for each of the runs that is not over.

        The caller does so before the work begins, so that an attempt whose process dies is counted. The
        attempt is deleted when its batch is committed or its answers are published.
        """
        names = frozenset(runs)

        def begin(connection: Connection) -> None:
            now = self._clock(connection)
            states = lock_states(connection, names)
            current = [run for run, state in states.items() if not state.is_over]
            if current:
                values = {"attempt": attempt, "step": step, "node": fence.name, "begun_at": now}
                connection.execute(insert(attempts), [{"run": run, **values} for run in current])

        self._write_fenced(fence, begin)

    def withdraw_attempt(self, attempt: str) -> None:
        """Stop counting an attempt that failed for a reason outside its control.

        Not fenced: a node that was replaced withdraws its attempts too.
        """
        self._write(lambda c: c.execute(delete(attempts).where(attempts.c.attempt == attempt)))

    def fail_attempt(self, attempt: str, reason: str) -> None:
        """Record why an attempt failed; it keeps counting."""
        failing = update(attempts).where(attempts.c.attempt == attempt).values(reason=reason)
        self._write(lambda c: c.execute(failing))

    def attempts(self, runs: Iterable[str], step: Step, node: str | None = None) -> dict[str, list[Attempt]]:
        """Return the attempts that count, oldest first, of the runs that have any.

        With `node`, only those of that node: other pipelines may process other shards of the same run.
        """
        names = frozenset(runs)

        def list_attempts(connection: Connection) -> dict[str, list[Attempt]]:
            columns = attempts.c
            query = select(columns.run, columns.attempt, columns.reason).where(_is_at(names, step, node))
            by_run: dict[str, list[Attempt]] = defaultdict(list)
            for row in connection.execute(query.order_by(columns.begun_at, columns.attempt)):
                by_run[row.run].append(Attempt(row.attempt, row.reason))
            return dict(by_run)

        return self._read(list_attempts)


def delete_attempts(
    connection: Connection, names: Collection[str], step: Step, node: str | None = None
) -> None:
    """Delete the attempts at a step that has succeeded."""
    connection.execute(delete(attempts).where(_is_at(names, step, node)))


def _is_at(names: Collection[str], step: Step, node: str | None) -> ColumnElement[bool]:
    is_of_node = true() if node is None else attempts.c.node == node
    return and_(attempts.c.run.in_(names), attempts.c.step == step, is_of_node)

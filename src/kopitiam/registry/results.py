"""The answers of a run: the pipeline that claims its final step, and the attempt that is published."""

import json
from typing import Any

from sqlalchemy import Connection, and_, insert, select, update

from kopitiam.contracts.errors import AlreadyPublished, IllegalTransition, RunOver, StaleEpoch
from kopitiam.contracts.runs import RunState
from kopitiam.registry.attempts import delete_attempts
from kopitiam.registry.keeping import keep_partials
from kopitiam.registry.leases import holds_lease
from kopitiam.registry.records import Fence, Published
from kopitiam.registry.runs import get_run, lock_run, move_run
from kopitiam.registry.schema import provisional, results, runs, upsert
from kopitiam.registry.transactions import RegistryBase


class ResultTransactions(RegistryBase):
    def claim_final(self, run: str, claimant: Fence) -> bool:
        """Reserve the final step of a run for one claimant, as long as its lease is current.

        True also if it has claimed the run before; False if another one has. Fenced by the claimant's own
        lease. Raises `RunOver` if the run is over, `IllegalTransition` if its barrier has not opened.
        """
        return self._write_fenced(claimant, lambda c: _claim_final(c, run, claimant, self._clock(c)))

    def release_claim(self, run: str, claimant: Fence) -> None:
        """Release the claim of the final step. No effect unless `claimant` has claimed it."""
        is_theirs = and_(
            runs.c.claimed_by == claimant.name,
            runs.c.claimed_epoch == claimant.epoch,
            runs.c.claimed_holder == claimant.holder,
        )
        releasing = update(runs).where(runs.c.run == run, is_theirs)
        cleared = releasing.values(claimed_by=None, claimed_epoch=None, claimed_holder=None)
        self._write(lambda c: c.execute(cleared))

    def publish_results(
        self,
        run: str,
        attempt: str,
        figures: dict[str, Any],
        fence: Fence | None = None,
        digests: dict[str, str] | None = None,
    ) -> None:
        """Move a final run to done, with the answers of this attempt, and keep its partials of data files.

        Repeating the call for the same attempt changes nothing. Raises `AlreadyPublished` if another attempt
        was published, and, with a fence, `StaleEpoch` unless that fence has claimed the run.
        """

        def publish(connection: Connection) -> None:
            now = self._clock(connection)
            current = lock_run(connection, run)
            if fence is not None and _claimant(connection, run) != fence:
                raise StaleEpoch(f"{fence.name} has not claimed run {run}, and cannot publish its answers")
            if before := published(connection, run):
                if before.attempt != attempt:
                    raise AlreadyPublished(
                        f"run {run} has the answers of attempt {before.attempt}, not of {attempt}"
                    )
                return
            move_run(connection, run, RunState.DONE, now)
            keep_partials(connection, current, now)
            delete_attempts(connection, [run], "final")
            values = _values(attempt, figures, now)
            values["digests"] = json.dumps(digests or {}, sort_keys=True)
            connection.execute(insert(results).values(run=run, **values))

        self._write_fenced(fence, publish)

    def results(self, run: str) -> Published | None:
        """Return the published answers; None if there are none."""

        def get_results(connection: Connection) -> Published | None:
            get_run(connection, run)
            return published(connection, run)

        return self._read(get_results)

    def publish_provisional(self, run: str, attempt: str, figures: dict[str, Any]) -> bool:
        """Replace the provisional answers. False, and no effect, if the run is over."""

        def publish(connection: Connection) -> bool:
            now = self._clock(connection)
            if lock_run(connection, run).state.is_over:
                return False
            delete_attempts(connection, [run], "provisional")
            values = _values(attempt, figures, now)
            connection.execute(
                upsert(connection, provisional)
                .values(run=run, **values)
                .on_conflict_do_update(index_elements=[provisional.c.run], set_=values)
            )
            return True

        return self._write(publish)

    def provisional(self, run: str) -> Published | None:
        """Return the latest provisional answers, also after the run is over; None if there are none."""

        def get_provisional(connection: Connection) -> Published | None:
            get_run(connection, run)
            query = select(provisional.c.attempt, provisional.c.figures, provisional.c.published_at)
            row = connection.execute(query.where(provisional.c.run == run)).one_or_none()
            return Published(row.attempt, json.loads(row.figures), row.published_at) if row else None

        return self._read(get_provisional)


def published(connection: Connection, run: str) -> Published | None:
    query = select(results.c.attempt, results.c.figures, results.c.published_at, results.c.digests)
    row = connection.execute(query.where(results.c.run == run)).one_or_none()
    if row is None:
        return None
    digests = json.loads(row.digests) if row.digests else {}
    return Published(row.attempt, json.loads(row.figures), row.published_at, digests)


def _values(attempt: str, figures: dict[str, Any], now: float) -> dict[str, Any]:
    return {"attempt": attempt, "figures": json.dumps(figures, sort_keys=True), "published_at": now}


def _claim_final(connection: Connection, run: str, claimant: Fence, now: float) -> bool:
    state = lock_run(connection, run).state
    if state.is_over:
        raise RunOver(f"run {run} is {state}")
    if state is not RunState.FINAL:
        raise IllegalTransition(f"run {run} is {state}, and its barrier has not opened")
    earlier = _claimant(connection, run)
    if earlier == claimant:
        return True
    if earlier is not None and holds_lease(connection, earlier, now):
        return False
    claiming = update(runs).where(runs.c.run == run)
    connection.execute(
        claiming.values(
            claimed_by=claimant.name, claimed_epoch=claimant.epoch, claimed_holder=claimant.holder
        )
    )
    return True


def _claimant(connection: Connection, run: str) -> Fence | None:
    """A claim of an earlier version has no holder: no lease matches it, so another claimant replaces it."""
    query = select(runs.c.claimed_by, runs.c.claimed_epoch, runs.c.claimed_holder).where(runs.c.run == run)
    name, epoch, holder = connection.execute(query).one()
    return None if name is None else Fence(name, epoch, holder or "")

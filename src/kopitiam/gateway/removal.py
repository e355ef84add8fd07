"""Removes what its owner deletes, and what no version of a data set needs any more.

The registry records a deletion first. If the gateway crashes, or a pipeline is still writing, the janitor
finishes it.
"""

import logging

from kopitiam.contracts.errors import RunNotFound, Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.messages import ForceEnd
from kopitiam.contracts.runs import Run
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.sql_queries import remove_queries
from kopitiam.landing.tidying import remove_partial, remove_partials, remove_run
from kopitiam.registry.keeping import Garbage
from kopitiam.system.crash_points import crash_point

SETTLING_SECONDS = 5.0  # a pipeline may still write files of a run that has just ended
_log = logging.getLogger(__name__)


def purge(gateway: Gateway, run: str) -> None:
    """Delete a run with its answers and its record. If it is not over, it is ended first, and the janitor
    deletes it some seconds later."""
    is_ended_now = gateway.registry.purge_run(run, "deleted")
    crash_point("purge.recorded")
    _log.warning("run %s: deleted by its owner", run, extra={"run": run})
    if is_ended_now:
        announce_force_end(gateway, run, "deleted")
    try_to_finish(gateway)


def drop(gateway: Gateway, owner: str, name: str) -> int:
    """Delete a data set with its files, its runs and their answers. Returns the number of runs.

    Raises DataSetNotFound.
    """
    crash_point("data.dropping")
    data_set = gateway.registry.data_set(owner, name)
    runs = gateway.registry.drop_data_set(owner, name)
    crash_point("data.dropped")
    _log.warning("data set %s of %s: dropped with %d runs", name, owner, len(runs))
    for run in runs:
        try:
            is_ended_now = gateway.registry.purge_run(run, "its data set was dropped")
        except RunNotFound:
            continue
        if is_ended_now:
            announce_force_end(gateway, run, "its data set was dropped")
    remove_queries(gateway, data_set.id)
    try_to_finish(gateway)
    return len(runs)


def announce_force_end(gateway: Gateway, run: str, reason: str) -> None:
    message = ForceEnd(runs=(run,), reason=reason)
    gateway.outbox.put(f"Force End of run {run}", lambda: gateway.bus.broadcast(message))


def try_to_finish(gateway: Gateway) -> None:
    """Remove what can be removed now; the janitor removes the rest."""
    try:
        finish(gateway)
    except (Unavailable, OSError) as error:
        _log.warning("deleted files are not removed yet: %s", error)


def finish(gateway: Gateway) -> None:
    """Remove purged runs, and data files and partials that are not needed any more."""
    registry, limits = gateway.registry, gateway.settings.gateway
    settled = registry.now() - SETTLING_SECONDS
    purged = registry.purged_before(settled)
    for run in purged:
        remove_finished_run(gateway, run)
    garbage = registry.collect(limits.keep_versions, limits.keep_plans, settled)
    if garbage:
        crash_point("garbage.marked")
        _remove(gateway, garbage)
        crash_point("garbage.removed")
        registry.forget(garbage)
    if purged or garbage:
        registry.erase()


def remove_finished_run(gateway: Gateway, run: Run) -> None:
    """Remove everything of a run that is over, its record last."""
    remove_partials(gateway.storage, gateway.registry.partials(run.run))
    remove_run(gateway.storage, run.run)
    gateway.registry.delete_run(run.run)


def _remove(gateway: Gateway, garbage: Garbage) -> None:
    for path in garbage.partials:
        remove_partial(gateway.storage, KEYS.partials / path)
    for file in garbage.files:
        _log.info("data file %s is not needed any more", file)
        remove_run(gateway.storage, file)

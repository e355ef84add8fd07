"""The janitor of a gateway: removes leftovers of ended runs, expired answers, and files of unknown runs."""

import logging
import math
import threading
import time

from kopitiam.contracts.errors import KopitiamError, RunNotFound
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import Run, RunState, is_run_id
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.removal import SETTLING_SECONDS, remove_finished_run
from kopitiam.gateway.removal import finish as finish_removals
from kopitiam.gateway.sql_queries import remove_expired
from kopitiam.landing.recognition import Premises
from kopitiam.landing.tidying import owners_at_rest, remove_material, remove_partials, remove_run

_ROUND_SECONDS = 2.0
_SECONDS_PER_HOUR = 3600
_SWEEP_SECONDS = 600.0
_COLLECTION_SECONDS = 4.0
_log = logging.getLogger(__name__)


def remove_finished(gateway: Gateway) -> None:
    """Remove leftovers of runs that are over, and runs whose answers were kept for `keep_results_hours`."""
    now = gateway.registry.now()
    for run in gateway.registry.finished_before(now - SETTLING_SECONDS, with_chunks=True):
        _remove_leftovers(gateway, run)
    kept_seconds = gateway.settings.gateway.keep_results_hours * _SECONDS_PER_HOUR
    for run in gateway.registry.finished_before(now - kept_seconds):
        remove_finished_run(gateway, run)


def _remove_leftovers(gateway: Gateway, run: Run) -> None:
    """Finish the cleanup of a run that is over, in case the node that ended it crashed."""
    if run.state is RunState.ENDED:
        remove_run(gateway.storage, run.run)
    else:
        published = gateway.registry.results(run.run)
        kept = KEYS.attempt(run.run, published.attempt) if published else None
        remove_material(gateway.storage, run.run, kept)
    remove_partials(gateway.storage, gateway.registry.partials(run.run))
    gateway.registry.delete_chunks(run.run)


def sweep(gateway: Gateway) -> None:
    """Remove files that a crash left in storage, of runs that are over, and SQL queries after an hour. Files
    of unknown runs stay for `orphan_hours`: the registry may be the wrong one."""
    premises = Premises(gateway.settings.home, gateway.storage, gateway.settings.storage.url)
    premises.recognize(gateway.registry)
    unknown = []
    for name in filter(is_run_id, owners_at_rest(gateway.storage)):
        try:
            run = gateway.registry.get_run(name)
        except RunNotFound:
            if not gateway.registry.is_known(name):  # else it is a data file
                unknown.append(name)
            continue
        if run.state.is_over:
            _remove_leftovers(gateway, run)
    _remove_orphans(gateway, unknown)
    remove_expired(gateway)


def _remove_orphans(gateway: Gateway, unknown: list[str]) -> None:
    """Remove runs and data files that have been unknown for `orphan_hours`. In shared storage they may belong
    to another registry, so there they are only logged."""
    waited = gateway.registry.record_orphans(unknown, 2 * _sweep_seconds(gateway))
    hours = gateway.settings.gateway.orphan_hours
    for name, seconds in waited.items():
        fields = {"run": name}
        if gateway.storage.is_shared:
            _log.info("run %s is in storage but not in the registry", name, extra=fields)
        elif seconds >= hours * _SECONDS_PER_HOUR:
            _log.warning(
                "run %s: not in the registry for %g h; its files are removed", name, hours, extra=fields
            )
            remove_run(gateway.storage, name)
        elif not seconds:
            _log.warning("run %s: not in the registry; its files stay for %g h", name, hours, extra=fields)


def _sweep_seconds(gateway: Gateway) -> float:
    grace = gateway.settings.gateway.orphan_hours * _SECONDS_PER_HOUR
    return min(_SWEEP_SECONDS, max(grace / 4, _ROUND_SECONDS))


def run_janitor(gateway: Gateway, stopping: threading.Event) -> None:
    """Clean up every two seconds, collect what data sets do not need any more every four, and sweep every ten
    minutes, until `stopping` is set. Errors are logged."""
    swept, collected, logged = -math.inf, -math.inf, ""
    while not stopping.wait(_ROUND_SECONDS if swept > 0 else 0):
        try:
            if time.monotonic() - swept >= _sweep_seconds(gateway):
                sweep(gateway)
                swept = time.monotonic()
            remove_finished(gateway)
            if time.monotonic() - collected >= _COLLECTION_SECONDS:
                finish_removals(gateway)
                collected = time.monotonic()
            logged = ""
        except (KopitiamError, OSError) as error:
            if str(error) != logged:  # log a lasting failure once
                _log.error("the janitor cannot clean up: %s", error)
            logged = str(error)
            stopping.wait(_ROUND_SECONDS)

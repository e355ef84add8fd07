"""What nobody else tidies: what ended runs left behind, answers past their time, files without a run."""

import logging
import threading
import time

from kopitiam.contracts.errors import KopitiamError, RunNotFound
from kopitiam.contracts.runs import Run, RunState, is_run_id
from kopitiam.gateway.context import Gateway
from kopitiam.landing.layout import KEYS
from kopitiam.landing.tidying import remove_material, remove_run, runs_at_rest

_ROUND_SECONDS = 2.0
_SECONDS_PER_HOUR = 3600
_SETTLING_SECONDS = 5.0  # whoever ended a run tidies up by itself, as a rule
_log = logging.getLogger(__name__)


def tidy(gateway: Gateway) -> None:
    """What the end of a run left behind, and answers that were kept long enough."""
    for run in gateway.registry.finished_before(time.time() - _SETTLING_SECONDS, with_chunks=True):
        clear_away(gateway, run)
    kept = gateway.settings.gateway.keep_results_hours * _SECONDS_PER_HOUR
    for run in gateway.registry.finished_before(time.time() - kept):
        remove_run(gateway.storage, run.run)
        gateway.registry.forget_run(run.run)


def clear_away(gateway: Gateway, run: Run) -> None:
    """What led to the end of a run, where whoever ended it did not live to do it."""
    if run.state is RunState.ENDED:
        remove_run(gateway.storage, run.run)
    else:
        published = gateway.registry.results(run.run)
        kept = KEYS.attempt(run.run, published.attempt) if published else None
        remove_material(gateway.storage, run.run, kept)
    gateway.registry.forget_chunks(run.run)


def sweep(gateway: Gateway) -> None:
    """Files that a life cut short left behind: of runs that are over or forgotten.

    In storage that others may use too, a run that is not known here may be theirs.
    """
    for name in filter(is_run_id, runs_at_rest(gateway.storage)):
        try:
            run = gateway.registry.get_run(name)
        except RunNotFound:
            if not gateway.storage.is_shared:
                remove_run(gateway.storage, name)
            continue
        if run.state.is_over:
            clear_away(gateway, run)


def keep_tidy(gateway: Gateway, stopping: threading.Event) -> None:
    swept = False
    while not stopping.wait(_ROUND_SECONDS if swept else 0):
        try:
            if not swept:
                sweep(gateway)
                swept = True
            tidy(gateway)
        except (KopitiamError, OSError) as error:
            _log.warning("tidying: %s", error)
            stopping.wait(_ROUND_SECONDS)

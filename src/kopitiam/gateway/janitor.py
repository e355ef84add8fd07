"""What nobody else tidies: what ended runs left behind, answers past their time, files without a run."""

import logging
import math
import threading
import time

from kopitiam.contracts.errors import KopitiamError, RunNotFound
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import Run, RunState, is_run_id
from kopitiam.gateway.context import Gateway
from kopitiam.landing.recognition import Premises
from kopitiam.landing.tidying import remove_material, remove_run, runs_at_rest

_ROUND_SECONDS = 2.0
_SECONDS_PER_HOUR = 3600
_SWEEP_SECONDS = 600.0
_SETTLING_SECONDS = 5.0  # whoever ended a run tidies up by itself, as a rule
_log = logging.getLogger(__name__)


def tidy(gateway: Gateway) -> None:
    """What the end of a run left behind, and answers that were kept long enough."""
    now = gateway.registry.now()
    for run in gateway.registry.finished_before(now - _SETTLING_SECONDS, with_chunks=True):
        clear_away(gateway, run)
    kept = gateway.settings.gateway.keep_results_hours * _SECONDS_PER_HOUR
    for run in gateway.registry.finished_before(now - kept):
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
    """Files that a life cut short left behind: of runs that are over or forgotten. Those of a run that the
    registry does not know wait: it may be the registry that is wrong."""
    premises(gateway).recognize(gateway.registry)
    unknown = []
    for name in filter(is_run_id, runs_at_rest(gateway.storage)):
        try:
            run = gateway.registry.get_run(name)
        except RunNotFound:
            unknown.append(name)
            continue
        if run.state.is_over:
            clear_away(gateway, run)
    _remove_orphans(gateway, unknown)


def _remove_orphans(gateway: Gateway, unknown: list[str]) -> None:
    """In storage that others may use too, a run that is not known here may be theirs."""
    waited = gateway.registry.wait_longer(unknown, 2 * _sweep_seconds(gateway))
    hours = gateway.settings.gateway.orphan_hours
    for name, seconds in waited.items():
        told = {"run": name}
        if gateway.storage.is_shared:
            _log.info("run %s is in storage, and the registry does not know it", name, extra=told)
        elif seconds >= hours * _SECONDS_PER_HOUR:
            _log.warning("run %s: the registry has not known it for %g h; removed", name, hours, extra=told)
            remove_run(gateway.storage, name)
        elif not seconds:
            _log.warning("run %s: the registry does not know it; removed in %g h", name, hours, extra=told)


def premises(gateway: Gateway) -> Premises:
    return Premises(gateway.settings.home, gateway.storage, gateway.settings.storage.url)


def _sweep_seconds(gateway: Gateway) -> float:
    grace = gateway.settings.gateway.orphan_hours * _SECONDS_PER_HOUR
    return min(_SWEEP_SECONDS, max(grace / 4, _ROUND_SECONDS))


def keep_tidy(gateway: Gateway, stopping: threading.Event) -> None:
    swept, told = -math.inf, ""
    while not stopping.wait(_ROUND_SECONDS if swept > 0 else 0):
        try:
            if time.monotonic() - swept >= _sweep_seconds(gateway):
                sweep(gateway)
                swept = time.monotonic()
            tidy(gateway)
            told = ""
        except (KopitiamError, OSError) as error:
            if str(error) != told:  # once, though it may last
                _log.error("nothing is tidied up: %s", error)
            told = str(error)
            stopping.wait(_ROUND_SECONDS)

"""What nobody else tidies: runs whose client is lost, answers past their time, files without a run."""

import logging
import shutil
import threading
import time

from kopitiam.contracts.errors import KopitiamError, RunNotFound
from kopitiam.contracts.runs import RunState, is_run_id
from kopitiam.gateway.context import Gateway
from kopitiam.landing.layout import Home

_ROUND_SECONDS = 2.0
_SECONDS_PER_HOUR = 3600
_log = logging.getLogger(__name__)


def remove_files(home: Home, run: str) -> None:
    """Landing first: whoever finds answers may still trust them."""
    for folder in home.run_folders(run):
        shutil.rmtree(folder, ignore_errors=True)


def tidy(gateway: Gateway) -> None:
    """Force End for runs that nobody feeds any more, and the end of answers that were kept long enough."""
    for run in gateway.registry.expired_runs():
        lease = gateway.settings.gateway.lease_seconds
        if gateway.registry.force_end(run.run, f"client lost for over {lease:g} s", only_if_expired=True):
            _log.warning("run %s: Force End, client lost", run.run)
            remove_files(gateway.home, run.run)
    kept = gateway.settings.gateway.keep_results_hours * _SECONDS_PER_HOUR
    for run in gateway.registry.finished_before(time.time() - kept):
        remove_files(gateway.home, run.run)
        gateway.registry.forget_run(run.run)


def sweep(gateway: Gateway) -> None:
    """Files that a life cut short left behind: of runs ended, failed or forgotten."""
    for run in filter(is_run_id, gateway.home.runs_on_disk()):
        try:
            state = gateway.registry.get_run(run).state
        except RunNotFound:
            state = RunState.ENDED
        if state is RunState.ENDED:
            remove_files(gateway.home, run)
        elif state.is_over:
            for folder in gateway.home.landing_folders(run):
                shutil.rmtree(folder, ignore_errors=True)


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

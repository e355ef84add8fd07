"""What a run leaves in storage, and how it goes. Nothing here minds being cut short and done again."""

import logging

from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.storage.port import Key, StoragePort

# Below a batch: written; by a task that is done, of a job that is not; by a task that is not.
PARTIALS_OF_RUNS = ("run=*", "_temporary/*/*/run=*", "_temporary/*/_temporary/*/run=*")
_log = logging.getLogger(__name__)


def remove_material(storage: StoragePort, run: str, published: Key | None = None) -> None:
    """What led to the answers, and what was written without being published."""
    for folder in storage.find(f"{KEYS.landing}/table=*/shard=*/run={run}"):
        storage.remove(folder)
    for folder in storage.find(f"{KEYS.results(run)}/*=*"):
        if folder != published:
            storage.remove(folder)
    for folder in storage.find(f"{KEYS.partials}/pipeline=*/batch=*/run={run}"):
        remove_partial(storage, folder)


def remove_run(storage: StoragePort, run: str) -> None:
    """Material first: whoever finds answers may still trust them."""
    remove_material(storage, run)
    for below in PARTIALS_OF_RUNS[1:]:
        for folder in storage.find(f"{KEYS.partials}/pipeline=*/batch=*/{below.removesuffix('*')}{run}"):
            storage.remove(folder)
    for folder in (KEYS.rejected(run), KEYS.results(run)):
        storage.remove(folder)


def let_go(storage: StoragePort, run: str) -> None:
    """The material of a run that is over, as far as it can be reached now; a gateway tidies up the rest."""
    try:
        remove_material(storage, run)
    except Unavailable as error:
        _log.warning("run %s is not tidied up yet: %s", run, error, extra={"run": run})


def remove_partial(storage: StoragePort, folder: Key) -> None:
    """With the folders above it that this leaves empty: those of its run and of its batch."""
    storage.remove(folder)
    for above in folder.parents:
        if "=" not in above.name or above.name.startswith("pipeline="):
            return
        if not storage.remove_if_empty(above):
            return


def runs_at_rest(storage: StoragePort) -> set[str]:
    patterns = (
        f"{KEYS.landing}/table=*/shard=*/run=*",
        *(f"{KEYS.partials}/pipeline=*/batch=*/{below}" for below in PARTIALS_OF_RUNS),
        f"{KEYS.rejected('*')}",
        f"{KEYS.results('*')}",
    )
    return {key.name.removeprefix("run=") for pattern in patterns for key in storage.find(pattern)}

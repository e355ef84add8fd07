"""Removes the files of a run or a data file from storage. Every function is idempotent: repeat it after a
crash."""

import logging
from collections.abc import Iterable

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.storage.port import Key, StoragePort

# Below a batch: committed; of a finished task of an unfinished job; of an unfinished task.
PARTIALS_OF_RUNS = ("run=*", "_temporary/*/*/run=*", "_temporary/*/_temporary/*/run=*")
_log = logging.getLogger(__name__)


def remove_material(storage: StoragePort, run: str, published: Key | None = None) -> None:
    """Remove chunks, partials, and attempts at answers other than `published`."""
    for folder in storage.find(f"{KEYS.landing}/table=*/shard=*/run={run}"):
        storage.remove(folder)
    for folder in storage.find(f"{KEYS.results(run)}/*=*"):
        if folder != published:
            storage.remove(folder)
    for folder in storage.find(f"{KEYS.partials}/pipeline=*/batch=*/run={run}"):
        remove_partial(storage, folder)


def remove_run(storage: StoragePort, run: str) -> None:
    """Remove all files of a run, the answers last: as long as they exist they are complete. Or all files of a
    data file, which lie in the same places."""
    remove_material(storage, run)
    for below in PARTIALS_OF_RUNS[1:]:
        for folder in storage.find(f"{KEYS.partials}/pipeline=*/batch=*/{below.removesuffix('*')}{run}"):
            storage.remove(folder)
    for folder in (KEYS.rejected(run), KEYS.results(run)):
        storage.remove(folder)


def try_remove_material(storage: StoragePort, run: str, partials: Iterable[Partial] = ()) -> None:
    """Remove the material of a run that is over, if storage is available; else the janitor does so later."""
    try:
        remove_material(storage, run)
        remove_partials(storage, partials)
    except Unavailable as error:
        _log.warning("the files of run %s are not removed yet: %s", run, error, extra={"run": run})


def remove_partials(storage: StoragePort, partials: Iterable[Partial]) -> None:
    """Remove the partials that a run has computed from data files; `remove_material` removes its others."""
    for partial in partials:
        if partial.origin is not None and partial.kept_as is None:
            remove_partial(storage, KEYS.partials / partial.path)


def remove_partial(storage: StoragePort, folder: Key) -> None:
    """Remove a partial, and the folders of its run and batch if that leaves them empty."""
    storage.remove(folder)
    for above in folder.parents:
        if "=" not in above.name or above.name.startswith("pipeline="):
            return
        if not storage.remove_if_empty(above):
            return


def owners_at_rest(storage: StoragePort) -> set[str]:
    """Return the ids of all runs and data files with files in storage."""
    patterns = (
        f"{KEYS.landing}/table=*/shard=*/run=*",
        *(f"{KEYS.partials}/pipeline=*/batch=*/{below}" for below in PARTIALS_OF_RUNS),
        f"{KEYS.rejected('*')}",
        f"{KEYS.results('*')}",
    )
    return {key.name.removeprefix("run=") for pattern in patterns for key in storage.find(pattern)}

"""Crash points: named places in the code where tests kill a process, as if by kill -9.

`KOPI_CRASH_AT=<point>[:n]` arms one of them: the process dies when it reaches the point for the n-th time.
"""

import os
import signal
import threading
from functools import cache

from kopitiam.contracts.errors import ConfigError

POINTS = {
    "chunk.begun": "the gateway is about to receive the body of a chunk",
    "chunk.received": "the body is in a temporary file, not yet checked",
    "chunk.checked": "the body is valid, the file is not yet synced",
    "chunk.synced": "the temporary file is on disk, not yet under its final name",
    "chunk.named": "the file has its final name, the folder is not yet synced",
    "chunk.durable": "file and folder are on disk, the chunk is not yet registered",
    "chunk.registered": "the registry has the chunk, the response is not yet sent",
    "table.ending": "the gateway has received END for a table, the registry has not yet sealed it",
    "table.sealed": "the registry has sealed the table, neither response nor TABLE_END is sent",
    "table.announced": "TABLE_END is published to the nodes",
    "files.named": "the registry has the files that a run sends to a data set, the response is not yet sent",
    "file.ended": "the registry has the END of a file, the response is not yet sent",
    "data.sealing": "a run is about to make a version of its data set, the registry has not recorded it",
    "data.sealed": "the registry has the version and its run's work, neither response nor TABLE_END is sent",
    "data.asked": "the registry has a run that asks a data set, neither response nor TABLE_END is sent",
    "data.dropping": "a data set is about to be dropped, the registry has not recorded it",
    "data.dropped": "the registry has dropped the data set, its runs and files are still there",
    "garbage.marked": "data files and partials are marked for removal, they are still on disk",
    "garbage.removed": "marked data files and partials are removed, their rows in the registry are not",
    "purge.recorded": "the registry has hidden a run for good, its answers are still on disk",
    "batch.begun": "Spark has logged the offsets of a batch, none of its chunks is read",
    "batch.read": "the chunks of the batch are known, nothing is computed",
    "batch.written": "the partials are written, the batch is not yet committed",
    "batch.unreported": "the registry has the batch, none of it is merged or reported",
    "batch.committed": "partials, counters and positions are committed, Spark's checkpoint is not written",
    "batch.checkpointed": "Spark's checkpoint records the batch as done, the next batch begins",
    "merge.written": "partials are merged into a new one, the registry still lists the old ones",
    "merge.committed": "the registry lists the merged partial, the old ones are still on disk",
    "barrier.decided": "the leader has decided to open the barrier, the registry has not recorded it",
    "barrier.opened": "the registry has recorded the open barrier, BARRIER_FORWARD is not yet sent",
    "barrier.forwarded": "BARRIER_FORWARD is in the queue of the pipelines",
    "final.claimed": "a pipeline has claimed the final step, no answer is computed",
    "results.written": "the answers are on disk, not yet published",
    "results.published": "the registry has the answers, chunks and partials are still on disk",
    "results.announced": "WORKER_END of the last stage is published to the gateways",
    "cleanup.files": "the files of a finished run are removed, its rows in the registry are not",
    "cleanup.done": "everything of a finished run is removed except its answers",
    "force_end.begun": "a run is about to be ended by force, the registry has not recorded it",
    "force_end.recorded": "the registry has ended the run, FORCE_END is not yet sent",
    "force_end.announced": "FORCE_END is in the outbox, the files of the run are still on disk",
    "epoch.requested": "a monitor is about to request the next epoch",
    "epoch.taken": "the registry has granted the epoch, it is not yet announced",
    "revival.decided": "the leader has found a node dead, the registry has not recorded it",
    "revival.recorded": "the registry has recorded the node as dead, its revive command is not yet run",
}

_lock = threading.Lock()
_passed = 0


def armed_point(environment: dict[str, str] | None = None) -> tuple[str, int] | None:
    """Return the armed point and its n, if any. Raises `ConfigError` for an unknown point."""
    text = (os.environ if environment is None else environment).get("KOPI_CRASH_AT")
    if not text:
        return None
    point, _, nth = text.partition(":")
    if point not in POINTS or (nth and not nth.isdigit()):
        raise ConfigError(f"KOPI_CRASH_AT={text}: expected one of {', '.join(POINTS)}, and perhaps :n")
    return point, int(nth or 1)


_armed = cache(armed_point)


def crash_point(point: str) -> None:
    """Kill this process if the point is armed and this is its n-th pass."""
    global _passed  # noqa: PLW0603 - counts over all threads of the process
    armed = _armed()
    if armed is None or armed[0] != point:
        return
    with _lock:
        _passed += 1
        if _passed == armed[1]:
            os.kill(os.getpid(), signal.SIGKILL)

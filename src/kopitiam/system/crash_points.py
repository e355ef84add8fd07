"""Crash points: named places in the code where tests kill a process, as if by kill -9.

`KOPI_CRASH_AT=<point>[:n]` arms one of them: the process dies when it reaches the point for the n-th time.
"""

import os
import signal
import threading
from functools import cache

from kopitiam.contracts.errors import ConfigError

POINTS = {
    "chunk.begun": "the body of a chunk is about to be received",
    "chunk.received": "the body is in a temporary file, not yet checked",
    "chunk.checked": "the body is sound, the file not yet synced",
    "chunk.synced": "the temporary file is on disk, not yet under its name",
    "chunk.named": "the file is under its name, the folder not yet synced",
    "chunk.durable": "file and folder are on disk, the registry does not know",
    "chunk.registered": "the registry has committed, the client has not heard",
    "table.ending": "the END of a table has come, the registry does not know",
    "table.sealed": "the registry has sealed the table, neither the client nor any node has heard",
    "table.told": "the nodes have been sent TABLE_END",
    "batch.begun": "Spark has written down what a batch is about, nothing of it is read",
    "batch.read": "the batch knows its chunks, nothing is computed",
    "batch.written": "the partials are written, the registry does not know",
    "batch.unreported": "the registry has the batch, nothing of it is merged or reported",
    "batch.committed": "partials, counters and positions are committed, Spark's checkpoint does not know",
    "batch.checkpointed": "Spark's checkpoint knows that the batch is done, the next one begins",
    "merge.written": "partials are merged into a new one, the registry knows the old ones",
    "merge.committed": "the registry knows the merged partial, the old ones are still on disk",
    "barrier.decided": "the barrier is to be opened, the registry does not know",
    "barrier.opened": "the registry knows that the barrier is open, no pipeline has heard",
    "barrier.forwarded": "a pipeline has been told to make the answers",
    "final.claimed": "the final step has its maker, nothing is made",
    "results.written": "the answers are on disk, not published",
    "results.published": "the registry has the answers, what led to them is still there",
    "results.told": "gateways have been told that the answers are out",
    "cleanup.files": "the files of a finished run are gone, its rows in the registry are not",
    "cleanup.done": "nothing is left of a finished run but its answers",
    "force_end.begun": "a run is about to be ended by force, the registry does not know",
    "force_end.recorded": "the registry has ended the run, no node has heard",
    "force_end.told": "FORCE_END is on its way to the nodes, the files of the run are still there",
    "epoch.wanted": "a monitor is about to take the next epoch",
    "epoch.taken": "the registry has granted the epoch, no other monitor has heard",
    "revival.decided": "the leader has found a node dead, the registry does not know",
    "revival.recorded": "the registry knows that the node is dead, its command is not run",
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
        raise ConfigError(f"KOPI_CRASH_AT={text}: want one of {', '.join(POINTS)}, and perhaps :n")
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

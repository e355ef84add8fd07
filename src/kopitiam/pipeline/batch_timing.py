"""When a batch begins: as soon as it is worth its planning, its client waits, or a core would be idle.

Planning a batch takes the same time for one chunk as for a hundred. While clients send and all cores are
busy, small batches only take time from the rest.
"""

import time
from dataclasses import dataclass, field

import psutil

SHORT_SECONDS = 0.5  # a small run is sent within this time, and then takes one batch instead of several
LONG_SECONDS = 5.0  # progress and provisional answers lag behind the upload by no more than this
_IDLE_CORES = 0.5  # a core that is idle half of the time can be used


@dataclass(frozen=True)
class Waiting:
    """Chunks that wait for a batch."""

    is_half_full: bool  # half a batch waits: its planning is a small part of its work
    has_complete_run: bool  # of a run that was sent completely, whose client waits for the answers
    has_ended_table: bool  # of a table that was sent completely
    has_idle_core: bool
    seconds: float  # that the first of them has waited at most


def is_due(waiting: Waiting) -> bool:
    """Whether a batch is to begin now."""
    if waiting.is_half_full or waiting.has_complete_run:
        return True
    is_urgent = waiting.has_ended_table or waiting.has_idle_core
    return waiting.seconds >= (SHORT_SECONDS if is_urgent else LONG_SECONDS)


def _cpu_seconds() -> tuple[float, float]:
    """Now, and the seconds that all cores together have been idle."""
    return time.monotonic(), psutil.cpu_times().idle


@dataclass
class Watch:
    """Measures the wait, and whether this machine has an idle core.

    A cluster's cores are used by Spark alone, so that they are idle whenever no batch runs.
    """

    is_cluster: bool = False
    _began: float = field(default_factory=time.monotonic)
    _cpu: tuple[float, float] = field(default_factory=_cpu_seconds)

    def restart(self) -> None:
        """Nothing waits: the chunk that is seen next may come right after this."""
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def has_idle_core(self) -> bool:
        """Whether a core was idle since the last call."""
        (before, idle_before), (now, idle) = self._cpu, _cpu_seconds()
        self._cpu = now, idle
        return self.is_cluster or idle - idle_before > _IDLE_CORES * (now - before)

"""How fast one caller may call: so many requests a second in the long run, and a burst now and then."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from kopitiam.gateway.problems import Refusal

BURST_SECONDS = 5  # of quiet, saved up
_MOST_CALLERS = 10_000  # remembered; those who have saved up all they can need not be


@dataclass
class _Bucket:
    left: float
    at: float


class Rates:
    """For one thread, that of the event loop."""

    def __init__(self, per_second: int, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = per_second * BURST_SECONDS
        self._now = now
        self._buckets: dict[str, _Bucket] = {}

    def admit(self, caller: str) -> None:
        """Counts a call. Raises Refusal (429) if there were too many."""
        self.require(caller)
        if self._per_second:
            self._filled(caller).left -= 1

    def require(self, caller: str) -> None:
        """The same, without counting."""
        if self._per_second and self._filled(caller).left < 1:
            raise Refusal(429, "too_fast", f"more than {self._per_second} requests a second; slow down")

    def _filled(self, caller: str) -> _Bucket:
        now = self._now()
        if len(self._buckets) >= _MOST_CALLERS and caller not in self._buckets:
            self._forget_the_quiet(now)
        bucket = self._buckets.setdefault(caller, _Bucket(self._most, now))
        bucket.left = min(self._most, bucket.left + (now - bucket.at) * self._per_second)
        bucket.at = now
        return bucket

    def _forget_the_quiet(self, now: float) -> None:
        self._buckets = {
            name: bucket for name, bucket in self._buckets.items() if now - bucket.at < BURST_SECONDS
        }

"""Speed limits: how often one caller may call, and how fast a body has to arrive."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kopitiam.contracts.config import GatewaySection
from kopitiam.gateway.problems import Refusal

BURST_SECONDS = 5  # a quiet caller saves up the requests of this many seconds
_MOST_CALLERS = 10_000  # kept in memory; full buckets are dropped first
_MIN_AGE_SECONDS = 0.5  # a body that began less than this ago is never slow


@dataclass
class _Bucket:
    tokens: float
    at: float


class RateLimit:
    """A token bucket for each caller; 0 requests per second is no limit. Only for the event loop's thread."""

    def __init__(self, per_second: int, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = per_second * BURST_SECONDS
        self._now = now
        self._buckets: dict[str, _Bucket] = {}

    def count(self, caller: str) -> None:
        """Count a request. Raises Refusal (429) if the caller is over the limit."""
        self.check(caller)
        if self._per_second:
            self._refilled(caller).tokens -= 1

    def check(self, caller: str) -> None:
        """Raise Refusal (429) if the caller is over the limit, without counting a request."""
        if self._per_second and self._refilled(caller).tokens < 1:
            raise Refusal(429, "too_fast", f"more than {self._per_second} requests a second; slow down")

    def _refilled(self, caller: str) -> _Bucket:
        now = self._now()
        if len(self._buckets) >= _MOST_CALLERS and caller not in self._buckets:
            self._drop_full(now)
        bucket = self._buckets.setdefault(caller, _Bucket(self._most, now))
        bucket.tokens = min(self._most, bucket.tokens + (now - bucket.at) * self._per_second)
        bucket.at = now
        return bucket

    def _drop_full(self, now: float) -> None:
        self._buckets = {
            name: bucket for name, bucket in self._buckets.items() if now - bucket.at < BURST_SECONDS
        }


class BodyPace:
    """The pace of one body: no long pause, a least rate, and a deadline for the whole. Only for the event
    loop's thread."""

    def __init__(self, limits: GatewaySection) -> None:
        self._limits = limits
        self._clock = asyncio.get_running_loop().time
        self._begun = self._last = self._clock()
        self._received = 0
        self._timeout: asyncio.Timeout | None = None
        self._is_evicted = False

    @asynccontextmanager
    async def enforced(self) -> AsyncIterator[None]:
        """Raise Refusal (408) when the body is late or evicted inside the block."""
        try:
            async with asyncio.timeout_at(self._late_at()) as self._timeout:
                yield
        except TimeoutError:
            if self._timeout is None or not self._timeout.expired():
                raise
            raise self._refusal() from None
        finally:
            self._timeout = None

    def add(self, size: int) -> None:
        """Count `size` bytes that have arrived."""
        self._received += size
        self._last = self._clock()
        if self._timeout is not None and not self._is_evicted:
            self._timeout.reschedule(self._late_at())

    @property
    def is_slow(self) -> bool:
        """Below the least rate, even within the grace period: another body may take its place."""
        if self._timeout is None or self._timeout.expired() or self._is_evicted:
            return False
        age = self._clock() - self._begun
        return age > _MIN_AGE_SECONDS and self._received < self._limits.min_bytes_per_second * age

    def evict(self) -> None:
        """End the body at once, if it is still arriving."""
        if self._timeout is not None and not self._timeout.expired():
            self._is_evicted = True
            self._timeout.reschedule(self._clock())

    def _late_at(self) -> float:
        limits = self._limits
        late = min(self._last + limits.idle_seconds, self._begun + limits.body_seconds)
        if limits.min_bytes_per_second:
            in_time = limits.grace_seconds + self._received / limits.min_bytes_per_second
            late = min(late, self._begun + in_time)
        return late

    def _refusal(self) -> Refusal:
        limits, now = self._limits, self._clock()
        if self._is_evicted:
            return Refusal(408, "slow", "this body came too slowly, and others were waiting for its place")
        if now >= self._begun + limits.body_seconds:
            return Refusal(408, "slow", f"not whole within {limits.body_seconds:g} s")
        if now >= self._last + limits.idle_seconds:
            return Refusal(408, "idle", f"nothing came for {limits.idle_seconds:g} s")
        return Refusal(408, "slow", f"fewer than {limits.min_bytes_per_second:,} bytes a second")

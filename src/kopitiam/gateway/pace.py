"""How fast a body has to come: without a long pause, at a least rate, and whole within a deadline."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kopitiam.contracts.config import GatewaySection
from kopitiam.gateway.problems import Refusal, idle

_NOTICED_SECONDS = 0.5  # after which a body that brings nothing can be told from one that has just begun


class Pace:
    """Of one body. Made and used in the event loop."""

    def __init__(self, limits: GatewaySection) -> None:
        self._limits = limits
        self._clock = asyncio.get_running_loop().time
        self._begun = self._last = self._clock()
        self._received = 0
        self._timeout: asyncio.Timeout | None = None
        self._gives_way = False

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Raises Refusal (408) if the body is late while the block lasts."""
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
        """So many bytes more have come."""
        self._received += size
        self._last = self._clock()
        if self._timeout is not None and not self._gives_way:
            self._timeout.reschedule(self._late_at())

    @property
    def is_slow(self) -> bool:
        """Below the least rate, even if the grace is not over; its place is for others to take."""
        if self._timeout is None or self._timeout.expired() or self._gives_way:
            return False
        age = self._clock() - self._begun
        return age > _NOTICED_SECONDS and self._received < self._limits.min_bytes_per_second * age

    def give_way(self) -> None:
        """Ends the body at once, if it is still coming."""
        if self._timeout is not None and not self._timeout.expired():
            self._gives_way = True
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
        if self._gives_way:
            return Refusal(408, "slow", "others wait for the place of this body, which comes too slowly")
        if now >= self._begun + limits.body_seconds:
            return Refusal(408, "slow", f"not whole within {limits.body_seconds:g} s")
        if now >= self._last + limits.idle_seconds:
            return Refusal(408, "idle", idle(limits.idle_seconds))
        return Refusal(408, "slow", f"fewer than {limits.min_bytes_per_second:,} bytes a second")

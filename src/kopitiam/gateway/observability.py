"""Readiness checks and Prometheus metrics of a gateway. The calls are in `routes.fleet`."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.concurrency import run_in_threadpool

from kopitiam.contracts.errors import KopitiamError, Unavailable
from kopitiam.gateway.problems import storage_error_text
from kopitiam.storage.port import StoragePort

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

REMEMBERED_SECONDS = 1.0  # for which the result of the checks is reused
WRITTEN_SECONDS = 10.0  # between two test writes to the registry and to shared storage
_TIMEOUT_SECONDS = 5.0
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds
Check = Callable[[], None]  # raises Unavailable with the reason


class Readiness:
    """Whether the gateway can take runs, checked at most once a second.

    Used in the event loop. The checks run on a thread, one after the other, never two at a time.
    """

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = checks
        self._checking: asyncio.Task[str | None] | None = None
        self._reason: str | None = None
        self._checked_at: float | None = None

    async def reason(self) -> str | None:
        """Return why the gateway is not ready; None if it is."""
        if self._checked_at is not None and time.monotonic() - self._checked_at < REMEMBERED_SECONDS:
            return self._reason
        if self._checking is None:
            self._checking = asyncio.create_task(self._run_checks())
        try:
            return await asyncio.wait_for(asyncio.shield(self._checking), _TIMEOUT_SECONDS)
        except TimeoutError:
            return f"the checks of registry and storage take more than {_TIMEOUT_SECONDS:g} s"

    async def _run_checks(self) -> str | None:
        try:
            self._reason = await run_in_threadpool(self._first_reason)
            self._checked_at = time.monotonic()
            return self._reason
        finally:
            self._checking = None

    def _first_reason(self) -> str | None:
        for check in self._checks:
            try:
                check()
            except KopitiamError as error:
                return str(error)
            except OSError as error:
                return storage_error_text(error)
        return None


def default_checks(registry: "Registry", storage: StoragePort, incoming: Path) -> tuple[Check, ...]:
    """Return the checks of a gateway: it can write to its incoming folder and read the registry; and, less
    often, it can write to the registry and to shared storage."""

    def incoming_is_writable() -> None:
        probe = incoming / "ready"
        try:
            try:
                probe.write_bytes(b"ready")
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"landing cannot be written to: {error.strerror}") from None

    def registry_answers() -> None:
        registry.nodes()

    written: list[Check] = [registry.check]
    if storage.is_shared:
        written.append(storage.check)
    return incoming_is_writable, registry_answers, *(_throttled(check) for check in written)


def _throttled(check: Check) -> Check:
    """Run the check at most every WRITTEN_SECONDS while it passes, and every time while it fails."""
    passed_at: float | None = None

    def throttled() -> None:
        nonlocal passed_at
        if passed_at is not None and time.monotonic() - passed_at < WRITTEN_SECONDS:
            return
        passed_at = None
        check()
        passed_at = time.monotonic()

    return throttled


class Metrics:
    """The Prometheus metrics of one gateway."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.chunks = Counter(
            "kopitiam_chunks", "Chunks by table and outcome", ["table", "outcome"], registry=self._registry
        )
        self.bytes = Counter(
            "kopitiam_chunk_bytes", "Bytes of stored bodies", ["table"], registry=self._registry
        )
        self.rows = Counter("kopitiam_rows", "Rows of stored chunks", ["table"], registry=self._registry)
        self.rejected = Counter("kopitiam_rejected_rows", "Rejected rows", ["table"], registry=self._registry)
        self.seconds = Histogram(
            "kopitiam_chunk_seconds",
            "Time of each step of a chunk",
            ["step"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.open_runs = Gauge("kopitiam_open_runs", "Runs that take chunks", registry=self._registry)
        self.bodies = Gauge("kopitiam_bodies_under_way", "Chunks being received", registry=self._registry)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

"""Whether the gateway can take runs, found out at most once a second however often it is asked.

To add a reason why a gateway is not ready, add a check to `checks`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from kopitiam.contracts.errors import KopitiamError, Unavailable
from kopitiam.gateway.troubles import storage_trouble
from kopitiam.registry.port import RegistryPort
from kopitiam.storage.port import StoragePort

REMEMBERED_SECONDS = 1.0
WRITTEN_SECONDS = 10.0  # between two writes to the registry and to shared storage
_PATIENCE_SECONDS = 5.0
Check = Callable[[], None]  # raises Unavailable with the reason


class Readiness:
    """Used in the event loop; checks run on a thread, one after the other, never two at a time."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = checks
        self._looking: asyncio.Task[str | None] | None = None
        self._reason: str | None = None
        self._looked_at: float | None = None

    async def reason(self) -> str | None:
        """Why the gateway is not ready; None if it is."""
        if self._looked_at is not None and time.monotonic() - self._looked_at < REMEMBERED_SECONDS:
            return self._reason
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), _PATIENCE_SECONDS)
        except TimeoutError:
            return f"the checks of registry and storage take more than {_PATIENCE_SECONDS:g} s"

    async def _look(self) -> str | None:
        try:
            self._reason = await run_in_threadpool(self._first_reason)
            self._looked_at = time.monotonic()
            return self._reason
        finally:
            self._looking = None

    def _first_reason(self) -> str | None:
        for check in self._checks:
            try:
                check()
            except KopitiamError as error:
                return str(error)
            except OSError as error:
                return storage_trouble(error)
        return None


def default_checks(registry: RegistryPort, storage: StoragePort, incoming: Path) -> tuple[Check, ...]:
    """Bodies can be received, the registry answers, and now and then: registry and storage can be written."""

    def receive() -> None:
        probe = incoming / "ready"
        try:
            try:
                probe.write_bytes(b"ready")
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"landing cannot be written to: {error.strerror}") from None

    def read() -> None:
        registry.nodes()

    written: list[Check] = [registry.check]
    if storage.is_shared:
        written.append(storage.check)
    return receive, read, *(_seldom(check) for check in written)


def _seldom(check: Check) -> Check:
    """At most once in a while as long as it is well; each time while it is not."""
    passed_at: float | None = None

    def checked() -> None:
        nonlocal passed_at
        if passed_at is not None and time.monotonic() - passed_at < WRITTEN_SECONDS:
            return
        passed_at = None
        check()
        passed_at = time.monotonic()

    return checked

"""Membership of a node in the fleet: its lease with an epoch, its heartbeats, and how it leaves.

Heartbeats and lease renewal have a thread each, which share no lock with the work or with each other: a busy
node, or one without a registry, still sends heartbeats. They vouch for the work: a node whose work has failed
stops sending them and exits, so that it is revived.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import MonitorSection
from kopitiam.contracts.errors import KopitiamError, ServiceError, StaleEpoch, Unavailable
from kopitiam.contracts.messages import HEARTBEAT_TOPIC, Heartbeat, NodeKind, NodeRecord, NodeState, Stopped
from kopitiam.registry.records import Fence

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_LEAVING_SECONDS = 4.0  # for all steps of leaving: a node exits within ten
_MAX_CHARACTERS = 1000  # of `alarm`, as the message allows
_MOST_OFFSET_SECONDS = 60.0  # of this machine's clock to the registry's
_RENEWALS_PER_CLOCK_CHECK = 5
VERSION = version("kopitiam")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeContext:
    """A node's name and kind, and what it shares with the other nodes."""

    name: str
    kind: NodeKind
    registry: "Registry"
    bus: BusPort
    pace: MonitorSection
    host: str = ""


class Membership:
    """Holds the lease of a node from construction to `leave`.

    `on_lost` is called once: with `StaleEpoch` when another process has taken the lease, with `ServiceError`
    when the work has failed.
    """

    def __init__(self, context: NodeContext, on_lost: Callable[[KopitiamError], None]) -> None:
        self.context = context
        self._on_lost = on_lost
        self._failure_reason: Callable[[], str | None] = lambda: None
        self._alarm: Callable[[], str | None] = lambda: None
        self._holder = uuid.uuid4().hex
        self._stopped = threading.Event()
        self._is_lost = False
        self._since = context.registry.now()
        self._url: str | None = None
        self._clock_alarm: str | None = None
        self._renewals = 0
        epoch = context.registry.take_over(context.name, self._holder, context.pace.timeout_seconds)
        self.fence = Fence(context.name, epoch, self._holder)
        self._threads = [
            threading.Thread(
                target=self._repeat, args=(step,), name=f"{step.__name__.strip('_')}", daemon=True
            )
            for step in (self._beat, self._renew)
        ]

    def start(
        self,
        url: str | None = None,
        failure_reason: Callable[[], str | None] = lambda: None,
        alarm: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Report the node alive, and start the threads. Both callbacks must return at once, None if all is
        well: `failure_reason` says why the work has failed, `alarm` why the work of a living node makes no
        progress, which the leader shows as the node's alarm."""
        self._url, self._failure_reason, self._alarm = url, failure_reason, alarm
        self.context.registry.report_node(self._record("alive", self._since), self.fence)
        for thread in self._threads:
            thread.start()

    def stop_silently(self) -> None:
        """Stop sending heartbeats without reporting a stop, so that the node is revived."""
        self._stopped.set()

    def leave(self) -> None:
        """Stop on purpose, so that the node is not revived. A no-op after the lease was lost.

        The registry is written before the message is published: a leader elected in between reads it there.
        """
        self._stopped.set()
        if self._is_lost:
            return
        leaving = threading.Thread(target=self._report_stopped, name="leaving", daemon=True)
        leaving.start()
        leaving.join(_LEAVING_SECONDS)

    def _report_stopped(self) -> None:
        context = self.context
        for step in (
            lambda: context.registry.report_node(self._record("stopped", context.registry.now()), self.fence),
            lambda: context.registry.release(context.name, self._holder, self.fence.epoch),
            lambda: context.bus.publish(HEARTBEAT_TOPIC, Stopped(node=context.name, epoch=self.fence.epoch)),
        ):
            try:
                step()
            except Unavailable as error:
                _log.warning("leaving: %s", error)
            except StaleEpoch as error:
                _log.warning("leaving: %s; another process holds the lease", error)
                return

    def _repeat(self, step: Callable[[], None]) -> None:
        """Repeat `step`, whatever it raises: a node without heartbeats is declared dead."""
        while not self._stopped.is_set():
            try:
                step()
            except Unavailable as error:
                _log.info("%s: %s", step.__name__, error)
            except Exception:
                _log.exception("%s", step.__name__)
            self._stopped.wait(self.context.pace.heartbeat_seconds)

    def _beat(self) -> None:
        if reason := self._failure_reason():
            _log.error("%s; no more heartbeats are sent", reason)
            self._stopped.set()
            self._on_lost(ServiceError(f"{self.context.name}: {reason}"))
            return
        alarm = self._alarm() or self._clock_alarm
        self.context.bus.publish(
            HEARTBEAT_TOPIC,
            Heartbeat(
                node=self.context.name,
                kind=self.context.kind,
                epoch=self.fence.epoch,
                pid=os.getpid(),
                url=self._url,
                sent_at=time.time(),
                alarm=alarm[:_MAX_CHARACTERS] if alarm else None,
                host=self.context.host or None,
                version=VERSION,
            ),
        )

    def _renew(self) -> None:
        context, epoch = self.context, self.fence.epoch
        if not context.registry.renew(context.name, self._holder, epoch, context.pace.timeout_seconds):
            self._stopped.set()
            reason = f"another process has taken its lease; epoch {epoch} is stale"
            self._is_lost = True
            self._on_lost(StaleEpoch(f"{context.name}: {reason}"))
            return
        if self._renewals % _RENEWALS_PER_CLOCK_CHECK == 0:
            self._check_clock()
        self._renewals += 1

    def _check_clock(self) -> None:
        """Name a wrong clock. Nothing depends on it, but times in logs and reports are wrong."""
        offset = self.context.registry.clock_offset()
        is_wrong = abs(offset) > _MOST_OFFSET_SECONDS
        direction = "ahead of" if offset > 0 else "behind"
        alarm = f"the clock of {self.context.host} is {abs(offset):,.0f} s {direction} the registry's"
        if is_wrong and self._clock_alarm is None:
            _log.error("%s", alarm)
        self._clock_alarm = alarm if is_wrong else None

    def _record(self, state: NodeState, since: float) -> NodeRecord:
        context = self.context
        return NodeRecord(
            context.name,
            context.kind,
            os.getpid(),
            self._url,
            state,
            since,
            self.fence.epoch,
            host=context.host or None,
        )

"""A node's place in the fleet: its lease with an epoch, its heartbeats, and how it leaves.

Heartbeats and the lease have a thread each, which share no lock with the work or with each other: a busy
node, or one whose registry is away, still says that it lives. A heartbeat vouches for the work: a node whose
work answers no more is silent, and leaves, so that it is revived.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import MonitorSection
from kopitiam.contracts.errors import KopitiamError, ServiceError, StaleEpoch, Unavailable
from kopitiam.contracts.messages import HEARTBEAT_TOPIC, Heartbeat, NodeKind, NodeRecord, NodeState, Stopped
from kopitiam.registry.records import Fence

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_LEAVING_SECONDS = 4.0  # for all that is to be said: a node is gone within ten
_MOST_CHARACTERS = 1000  # of a trouble, as its message takes
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeContext:
    """Where a node stands: its name, its kind, and what it shares with the others."""

    name: str
    kind: NodeKind
    registry: "Registry"
    bus: BusPort
    pace: MonitorSection


class Membership:
    """From the start to `leave`. `on_lost` is called once, when another life has taken this one's place, or
    when the work answers no more."""

    def __init__(self, place: NodeContext, on_lost: Callable[[KopitiamError], None]) -> None:
        self.place = place
        self._on_lost = on_lost
        self._vouch: Callable[[], str | None] = lambda: None
        self._trouble: Callable[[], str | None] = lambda: None
        self._holder = uuid.uuid4().hex
        self._left = threading.Event()
        self._is_lost = False
        self._since = place.registry.now()
        self._url: str | None = None
        epoch = place.registry.take_over(place.name, self._holder, place.pace.timeout_seconds)
        self.fence = Fence(place.name, epoch, self._holder)
        self._threads = [
            threading.Thread(target=self._keep, args=(tell,), name=f"{tell.__name__.strip('_')}", daemon=True)
            for tell in (self._beat, self._renew)
        ]

    def start(
        self,
        url: str | None = None,
        vouch: Callable[[], str | None] = lambda: None,
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`vouch` says at once why nobody should rely on this node; None if there is no reason. `trouble`
        says why the work of a living node makes no progress: the leader shows it as the node's alarm."""
        self._url, self._vouch, self._trouble = url, vouch, trouble
        self.place.registry.report_node(self._record("alive", self._since), self.fence)
        for thread in self._threads:
            thread.start()

    def stop_silently(self) -> None:
        """Without a goodbye, so that it is revived."""
        self._left.set()

    def leave(self) -> None:
        """On purpose: nobody is to revive it. One whose place was taken has nothing to say any more.

        The registry first: whoever comes to lead then reads it there, or is there to be told.
        """
        self._left.set()
        if self._is_lost:
            return
        leaving = threading.Thread(target=self._say_goodbye, name="leaving", daemon=True)
        leaving.start()
        leaving.join(_LEAVING_SECONDS)

    def _say_goodbye(self) -> None:
        place = self.place
        for step in (
            lambda: place.registry.report_node(self._record("stopped", place.registry.now()), self.fence),
            lambda: place.registry.release(place.name, self._holder, self.fence.epoch),
            lambda: place.bus.publish(HEARTBEAT_TOPIC, Stopped(node=place.name, epoch=self.fence.epoch)),
        ):
            try:
                step()
            except Unavailable as error:
                _log.warning("leaving: %s", error)
            except StaleEpoch as error:
                _log.warning("leaving: %s; another life has this place, and stays", error)
                return

    def _keep(self, tell: Callable[[], None]) -> None:
        """Whatever happens: a node that is silent is taken for dead."""
        while not self._left.is_set():
            try:
                tell()
            except Unavailable as error:
                _log.info("%s: %s", tell.__name__, error)
            except Exception:
                _log.exception("%s", tell.__name__)
            self._left.wait(self.place.pace.heartbeat_seconds)

    def _beat(self) -> None:
        if reason := self._vouch():
            _log.error("%s; it sends no more heartbeats", reason)
            self._left.set()
            self._on_lost(ServiceError(f"{self.place.name}: {reason}"))
            return
        trouble = self._trouble()
        self.place.bus.publish(
            HEARTBEAT_TOPIC,
            Heartbeat(
                node=self.place.name,
                kind=self.place.kind,
                epoch=self.fence.epoch,
                pid=os.getpid(),
                url=self._url,
                sent_at=time.time(),
                trouble=trouble[:_MOST_CHARACTERS] if trouble else None,
            ),
        )

    def _renew(self) -> None:
        place, epoch = self.place, self.fence.epoch
        if not place.registry.renew(place.name, self._holder, epoch, place.pace.timeout_seconds):
            self._left.set()
            reason = f"another process has taken its place; epoch {epoch} is over"
            self._is_lost = True
            self._on_lost(StaleEpoch(f"{place.name}: {reason}"))

    def _record(self, state: NodeState, since: float) -> NodeRecord:
        return NodeRecord(
            self.place.name, self.place.kind, os.getpid(), self._url, state, since, self.fence.epoch
        )

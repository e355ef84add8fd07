"""The barrier's shell: messages and the registry in, decisions under an epoch out.

One thread feeds the machine, so that it needs no lock. It wakes for every message; from time to time, and
after anything went wrong, it compares with the registry, which is the truth.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable

from kopitiam.bus.port import BusPort, Subscription
from kopitiam.contracts.crash_points import crash_point
from kopitiam.contracts.errors import IllegalTransition, RunNotFound, RunOver, StaleEpoch, Unavailable
from kopitiam.contracts.messages import (
    END_TOPICS,
    FINAL_QUEUE,
    PROGRESS_TOPICS,
    BarrierForward,
    ForceEnd,
    Message,
    TableEnd,
    WorkerEnd,
    WorkerStats,
)
from kopitiam.contracts.runs import RunState
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.supervision.barrier import Barriers, Decision, FailRun, Forward, OpenBarrier, Snapshot

RECONCILE_SECONDS = 2.0
_STOPPING_SECONDS = 2.0
FORWARD_AGAIN_SECONDS = 10.0  # a final step that nobody seems to have heard of
_log = logging.getLogger(__name__)


class Coordinator:
    def __init__(
        self, registry: RegistryPort, bus: BusPort, fence: Fence, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._bus = bus
        self._fence = fence
        self._now = now
        self._barriers = Barriers()
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._forwarded: dict[str, float] = {}
        self._subscriptions: dict[str, Subscription] = {}

    def run(self) -> None:
        """Until told to stop, or until another leads (`StaleEpoch`)."""
        try:
            self._serve()
        finally:
            for subscription in self._subscriptions.values():
                subscription.cancel()

    def stop(self) -> None:
        self._stopping.set()
        self._inbox.put(None)

    def _serve(self) -> None:
        next_look = self._now()
        while not self._stopping.is_set():
            if (wait := next_look - self._now()) <= 0:
                self._listen()
                self.reconcile()
                next_look = self._now() + RECONCILE_SECONDS
                continue
            try:
                message = self._inbox.get(timeout=wait)
            except queue.Empty:
                continue
            if isinstance(message, TableEnd | WorkerStats | WorkerEnd):
                self._carry_out(self._barriers.handle(message))

    def _listen(self) -> None:
        """Again, if the bus was away when this leader was elected: the registry tells the same, but later."""
        for topic in {END_TOPICS, PROGRESS_TOPICS} - self._subscriptions.keys():
            try:
                self._subscriptions[topic] = self._bus.subscribe(topic, self._inbox.put)
            except Unavailable as error:
                _log.warning("barrier: %s", error)

    def reconcile(self) -> None:
        """Finds what messages that were lost should have said."""
        try:
            views = self._registry.barrier_views()
            self._end_the_lost()
        except Unavailable as error:
            _log.warning("barrier: %s", error)
            return
        final = {view.run.run for view in views if view.run.state is RunState.FINAL}
        self._forwarded = {run: at for run, at in self._forwarded.items() if run in final}
        for view in views:
            snapshot = Snapshot(view.run.run, view.run.state, view.expected, view.processed, view.pending)
            self._carry_out(self._barriers.handle(snapshot))

    def _end_the_lost(self) -> None:
        """Force End for runs whose client has not been heard of for longer than its lease."""
        reason = "client lost for longer than its lease"
        for run in self._registry.expired_runs():
            if self._registry.force_end(run.run, reason, only_if_expired=True, fence=self._fence):
                _log.warning("run %s: Force End, %s", run.run, reason, extra={"run": run.run})
                self._bus.broadcast(ForceEnd(runs=(run.run,), reason=reason))

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            try:
                self._decide(decision)
            except (RunOver, RunNotFound, IllegalTransition) as error:
                _log.info("barrier: %s", error)
            except Unavailable as error:
                _log.warning("barrier of run %s: %s; trying again", decision.run, error)
            except StaleEpoch:
                raise

    def _decide(self, decision: Decision) -> None:
        match decision:
            case OpenBarrier(run):
                crash_point("barrier.decided")
                if self._registry.open_barrier(run, self._fence):
                    crash_point("barrier.opened")
                    self._forward(run)
            case Forward(run):
                if self._now() - self._forwarded.get(run, -FORWARD_AGAIN_SECONDS) >= FORWARD_AGAIN_SECONDS:
                    self._forward(run)
            case FailRun(run, reason):
                _log.warning("run %s: %s", run, reason, extra={"run": run})
                self._registry.move(run, RunState.FAILED, reason, self._fence)
                self._bus.broadcast(ForceEnd(runs=(run,), reason=reason))

    def _forward(self, run: str) -> None:
        self._bus.send(FINAL_QUEUE, BarrierForward(run=run, epoch=self._fence.epoch))
        self._forwarded[run] = self._now()
        crash_point("barrier.forwarded")


class Coordination:
    """A coordinator on a thread of its own, for as long as its epoch lasts."""

    def __init__(self, registry: RegistryPort, bus: BusPort, fence: Fence) -> None:
        self._coordinator = Coordinator(registry, bus, fence)
        self.is_stale = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._coordinator.stop()
        self._thread.join(_STOPPING_SECONDS)

    def _run(self) -> None:
        try:
            self._coordinator.run()
        except StaleEpoch as error:
            _log.warning("barrier: %s", error)
            self.is_stale.set()

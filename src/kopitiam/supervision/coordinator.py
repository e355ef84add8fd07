"""The shell of the barrier machine: feeds it messages and snapshots, commits its decisions under an epoch.

A single thread feeds the machine, which therefore needs no lock. It wakes for every message, and reconciles
with the registry every two seconds.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kopitiam.bus.port import BusPort, Subscription
from kopitiam.contracts.errors import (
    BarrierNotReady,
    BusUnavailable,
    IllegalTransition,
    RunNotFound,
    RunOver,
    StaleEpoch,
    Unavailable,
)
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
from kopitiam.registry.records import Fence
from kopitiam.supervision.actions import log_action
from kopitiam.supervision.barrier import Barriers, Decision, FailRun, Forward, OpenBarrier, ReadSnapshot
from kopitiam.system.crash_points import crash_point

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

RECONCILE_SECONDS = 2.0
_STOPPING_SECONDS = 2.0
FORWARD_AGAIN_SECONDS = 10.0  # resend if the final step has not ended by then
PAUSE_SECONDS = 10.0  # between two lease checks: the process or machine was suspended
JUMP_SECONDS = 1.0  # tolerated difference between the registry's clock and ours
_log = logging.getLogger(__name__)


class Coordinator:
    """Opens barriers, fails contradictory runs and force-ends runs of lost clients, under one epoch.

    `start` runs it on its own thread, `run` on the caller's. Messages only wake it; every decision is made
    from the registry, so it can be discarded and rebuilt at any time.
    """

    def __init__(
        self,
        registry: "Registry",
        bus: BusPort,
        fence: Fence,
        *,
        are_gateways_alive: Callable[[], bool] = lambda: True,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Client leases are measured by the registry's clock, everything else by `steady`, a monotonic clock.
        While `are_gateways_alive` is false no client can renew its lease, and none is declared lost."""
        self._registry = registry
        self._bus = bus
        self._fence = fence
        self._are_gateways_alive = are_gateways_alive
        self._steady = steady
        self.is_stale = threading.Event()  # another leader holds a later epoch
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_until_stale, name="coordinator", daemon=True)
        self._reset()

    def _reset(self) -> None:
        self._last_lease_check: tuple[float, float] | None = None  # registry time, steady time
        self._is_bus_away = False  # a failed attempt costs a timeout: skip the others in this pass
        self._barriers = Barriers()
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._forwarded: dict[str, float] = {}
        self._subscriptions: dict[str, Subscription] = {}

    def start(self) -> None:
        """Run on a daemon thread until `stop` is called or the epoch is stale (then `is_stale` is set)."""
        self._thread.start()

    def run(self) -> None:
        """Run until `stop` is called. Raises `StaleEpoch` once another leader holds a later epoch."""
        try:
            self._serve()
        finally:
            for subscription in self._subscriptions.values():
                subscription.cancel()

    def stop(self) -> None:
        self._stopping.set()
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(_STOPPING_SECONDS)

    def _run_until_stale(self) -> None:
        """After an unexpected error, drop the state and rebuild it from the registry."""
        while not self._stopping.is_set():
            try:
                self.run()
            except StaleEpoch as error:
                _log.warning("barrier: %s", error)
                self.is_stale.set()
                return
            except Exception:
                _log.exception("barrier: restarting from the registry")
                self._reset()
                self._stopping.wait(RECONCILE_SECONDS)

    def _serve(self) -> None:
        next_pass = self._steady()
        while not self._stopping.is_set():
            if (wait := next_pass - self._steady()) <= 0:
                self._subscribe()
                self.reconcile()
                next_pass = self._steady() + RECONCILE_SECONDS
                continue
            try:
                message = self._inbox.get(timeout=wait)
            except queue.Empty:
                continue
            if isinstance(message, TableEnd | WorkerStats | WorkerEnd):
                self._carry_out(self._barriers.handle(message))

    def _subscribe(self) -> None:
        """Retried each pass while the bus is unavailable; reconciliation covers the gap."""
        for topic in {END_TOPICS, PROGRESS_TOPICS} - self._subscriptions.keys():
            try:
                self._subscriptions[topic] = self._bus.subscribe(topic, self._inbox.put)
            except Unavailable as error:
                _log.warning("barrier: %s", error)

    def reconcile(self) -> None:
        """Feed the machine a snapshot of every unfinished run, which repairs lost messages."""
        self._is_bus_away = False
        try:
            snapshots = self._registry.snapshots()
            self._check_client_leases()
        except Unavailable as error:
            self._last_lease_check = None  # gateways could not renew leases either
            _log.warning("barrier: %s", error)
            return
        final = {snapshot.run for snapshot in snapshots if snapshot.state is RunState.FINAL}
        self._forwarded = {run: at for run, at in self._forwarded.items() if run in final}
        for snapshot in snapshots:
            self._carry_out(self._barriers.handle(snapshot))

    def _check_client_leases(self) -> None:
        """Force-end runs whose client lease expired, but only if the clients could renew it all the time.

        After an election, an outage of the registry or the gateways, a suspension of this process or a clock
        jump, every client first gets a full lease.
        """
        if not self._are_gateways_alive():
            self._last_lease_check = None
            return
        before = self._steady()
        now = self._registry.now()
        if self._last_lease_check is None or self._has_clock_jumped(now, before):
            self._registry.renew_open_runs(self._fence)
        self._last_lease_check = (now, self._steady())
        self._force_end_expired_runs(now)

    def _has_clock_jumped(self, now: float, requested_at: float) -> bool:
        """Whether the registry's clock and ours have advanced differently. The registry was read after
        `requested_at`."""
        assert self._last_lease_check is not None
        registry_then, steady_then = self._last_lease_check
        registry_passed, steady_passed = now - registry_then, self._steady() - steady_then
        waited = self._steady() - requested_at
        return steady_passed > PAUSE_SECONDS or abs(registry_passed - steady_passed) > JUMP_SECONDS + waited

    def _force_end_expired_runs(self, now: float) -> None:
        """Force End for runs whose client lease has expired."""
        reason = "client lost for longer than its lease"
        for run in self._registry.expired_runs():
            crash_point("force_end.begun")
            if self._registry.force_end(run.run, reason, only_if_expired=True, fence=self._fence, as_of=now):
                crash_point("force_end.recorded")
                _log.warning("run %s: Force End, %s", run.run, reason, extra={"run": run.run})
                log_action(self._fence.epoch, "force-ends", run.run)
                self._broadcast_force_end(ForceEnd(runs=(run.run,), reason=reason))

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            try:
                self._decide(decision)
            except (BarrierNotReady, RunOver, RunNotFound, IllegalTransition) as error:
                _log.info("barrier: %s", error)
            except Unavailable as error:
                _log.warning("barrier of run %s: %s; trying again", decision.run, error)

    def _decide(self, decision: Decision) -> None:
        match decision:
            case ReadSnapshot(run):
                self._carry_out(self._barriers.handle(self._registry.snapshot(run)))
            case OpenBarrier(run):
                crash_point("barrier.decided")
                if self._registry.open_barrier(run, self._fence):
                    log_action(self._fence.epoch, "opens barrier of", run)
                    crash_point("barrier.opened")
                    self._forward(run)
            case Forward(run):
                if self._steady() - self._forwarded.get(run, -math.inf) >= FORWARD_AGAIN_SECONDS:
                    self._forward(run)
            case FailRun(run):
                reason = self._registry.fail_if_contradictory(run, self._fence)
                if reason is None:
                    return
                _log.warning("run %s: %s", run, reason, extra={"run": run})
                log_action(self._fence.epoch, "fails", run)
                self._broadcast_force_end(ForceEnd(runs=(run,), reason=reason))

    def _broadcast_force_end(self, message: ForceEnd) -> None:
        """Best effort: nodes that miss it read the run's state in the registry."""
        if self._is_bus_away:
            return
        try:
            self._bus.broadcast(message)
        except BusUnavailable as error:
            self._is_bus_away = True
            _log.warning("Force End: %s", error)

    def _forward(self, run: str) -> None:
        """Reconciliation resends it if the bus is unavailable. One attempt per pass waits for the timeout."""
        if self._is_bus_away:
            return
        try:
            self._bus.send(FINAL_QUEUE, BarrierForward(run=run, epoch=self._fence.epoch))
        except BusUnavailable:
            self._is_bus_away = True
            raise
        self._forwarded[run] = self._steady()
        crash_point("barrier.forwarded")

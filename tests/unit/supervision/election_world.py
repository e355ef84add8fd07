"""A simulation of monitors, a registry that grants epochs, and an unreliable network."""

from dataclasses import dataclass, field

from kopitiam.supervision.election import (
    Bully,
    ElectionAction,
    SendAnnouncement,
    SendAnswer,
    SendElection,
    State,
    StepDown,
    TakeEpoch,
)

ANSWER, COORDINATOR, LEADER, LEASE = 1.0, 2.0, 4.0, 3.0
STEP = 0.25
RENEWAL_STEPS = 4


@dataclass
class ModelRegistry:
    """Grants growing epochs: the holder is the last granted. If it keeps leases, a lower id is refused
    while a higher one renews."""

    keeps_leases: bool
    epoch: int = 0
    holder: int | None = None
    expires_at: float = 0.0
    granted: dict[int, int] = field(default_factory=dict)
    written: list[int] = field(default_factory=list)

    def take(self, monitor: int, now: float) -> tuple[str, tuple[int, ...]]:
        if self.keeps_leases and (self.holder or 0) > monitor and now < self.expires_at:
            return "on_epoch_refused", ()
        self.epoch += 1
        self.holder, self.expires_at = monitor, now + LEASE
        self.granted[self.epoch] = monitor
        return "on_epoch_granted", (self.epoch,)

    def write(self, epoch: int) -> bool:
        if epoch != self.epoch:
            return False
        self.written.append(epoch)
        return True

    def renew(self, monitor: int, epoch: int, now: float) -> bool:
        is_current = (monitor, epoch) == (self.holder, self.epoch)
        if is_current:
            self.expires_at = now + LEASE
        return is_current


@dataclass(frozen=True)
class Call:
    """A call in flight to a monitor, for one of its processes (`life`); `sender` 0 is the registry."""

    sender: int
    to: int
    method: str
    arguments: tuple[int, ...]
    life: int | None = None


class World:
    def __init__(self, size: int, keeps_leases: bool) -> None:
        self.ids = frozenset(range(1, size + 1))
        self.registry = ModelRegistry(keeps_leases)
        self.now = 0.0
        self.lives = dict.fromkeys(self.ids, 0)
        self.monitors: dict[int, Bully] = {}
        self.calls: list[Call] = []
        self.requests: list[tuple[int, int]] = []  # for an epoch: monitor and its process
        self.cut: set[frozenset[int]] = set()
        self.shut_out: set[int] = set()  # without access to the registry
        self.elections = 0
        for monitor in self.ids:
            self.start(monitor)

    # -- events

    def start(self, monitor: int) -> None:
        self.lives[monitor] += 1
        self.monitors[monitor] = Bully(monitor, self.ids - {monitor}, ANSWER, COORDINATOR, LEADER)

    def crash(self, monitor: int) -> None:
        self.monitors.pop(monitor, None)

    def leave(self, monitor: int) -> None:
        """Stop on purpose: release the lease and send STOPPED."""
        bully = self.monitors.pop(monitor, None)
        if bully is None:
            return
        if self.registry.holder == monitor and bully.state is State.LEADER:
            self.registry.expires_at = self.now
        self._send_to_all(monitor, "on_leader_left", (monitor,))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for monitor, bully in self.monitors.items():
            self.call(monitor, "tick")
            if bully.state is State.LEADER:
                self._send_to_all(monitor, "on_announcement", (monitor, bully.epoch))

    def renew(self, monitor: int) -> None:
        bully = self.monitors[monitor]
        if bully.state is not State.LEADER:
            return
        if monitor in self.shut_out or not self.registry.renew(monitor, bully.epoch, self.now):
            self.call(monitor, "on_epoch_lost")

    # -- actions of monitors

    def call(self, monitor: int, method: str, *arguments: int) -> None:
        bully = self.monitors[monitor]
        was_leader = bully.state is State.LEADER
        actions = getattr(bully, method)(*arguments, self.now)
        assert (StepDown() in actions) == (was_leader and bully.state is not State.LEADER)
        self.perform(monitor, actions)

    def perform(self, monitor: int, actions: list[ElectionAction]) -> None:
        for action in actions:
            match action:
                case SendElection():
                    assert action.to == tuple(sorted(each for each in self.ids if each > monitor))
                    self.elections += 1
                    self._send_to_all(monitor, "on_election", (monitor,))
                case SendAnswer(to):
                    self.calls.append(Call(monitor, to, "on_answer", (monitor,)))
                case SendAnnouncement(epoch):
                    self._send_to_all(monitor, "on_announcement", (monitor, epoch))
                case TakeEpoch():
                    self.elections += 1
                    self.requests.append((monitor, self.lives[monitor]))

    def _send_to_all(self, sender: int, method: str, arguments: tuple[int, ...]) -> None:
        self.calls += [Call(sender, to, method, arguments) for to in sorted(self.ids - {sender})]

    # -- delivery

    def deliver(self, call: Call) -> None:
        is_cut = frozenset({call.sender, call.to}) in self.cut
        is_for_another_life = call.life is not None and call.life != self.lives[call.to]
        if call.to in self.monitors and not is_cut and not is_for_another_life:
            self.call(call.to, call.method, *call.arguments)

    def serve(self, request: tuple[int, int]) -> None:
        monitor, life = request
        is_shut_out = monitor in self.shut_out
        method, arguments = ("on_epoch_refused", ()) if is_shut_out else self.registry.take(monitor, self.now)
        self.calls.append(Call(0, monitor, method, arguments, life))

    def run_without_faults(self, seconds: float) -> None:
        """Every message arrives within a step; leaders renew their lease every few steps."""
        for step in range(int(seconds / STEP)):
            requests, self.requests = self.requests, []
            for request in requests:
                self.serve(request)
            calls, self.calls = self.calls, []
            for call in calls:
                self.deliver(call)
            for monitor in self.monitors if step % RENEWAL_STEPS == 0 else ():
                self.renew(monitor)
            self.pass_time(STEP)

    @property
    def leaders(self) -> list[int]:
        """Monitors whose writes the registry accepts."""
        return [
            monitor
            for monitor, bully in self.monitors.items()
            if bully.state is State.LEADER and bully.epoch == self.registry.epoch
        ]

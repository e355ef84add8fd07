"""Invariants of the election: at most one leader whose writes are accepted; after the faults end, all
monitors agree on the highest live one, and no more elections happen.
"""

from election_world import ANSWER, COORDINATOR, LEADER, STEP, World
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kopitiam.supervision.election import State

ANY = st.integers(0, 10**6)
SETTLING = 6 * (ANSWER + COORDINATOR + LEADER)
QUIET = 20 * LEADER


def check_converges(world: World) -> None:
    """The highest live monitor leads, all others follow it, and no more elections happen."""
    world.run_without_faults(SETTLING)
    highest = max(world.monitors)
    assert world.leaders == [highest]
    for monitor, bully in world.monitors.items():
        assert bully.state is (State.LEADER if monitor == highest else State.FOLLOWER)
        assert (bully.leader, bully.epoch) == (highest, world.registry.epoch)
    before = world.elections
    world.run_without_faults(QUIET)
    assert world.elections == before
    assert world.leaders == [highest]


class ElectionUnderFaults(RuleBasedStateMachine):
    """Messages are lost, repeated, late and out of order, monitors crash and restart, partitions form and
    heal, the registry is slow or unreachable."""

    @initialize(size=st.integers(3, 5), keeps_leases=st.booleans())
    def begin(self, size: int, keeps_leases: bool) -> None:
        self.world = World(size, keeps_leases)
        self.epochs: dict[tuple[int, int], int] = {}

    @rule(seconds=st.sampled_from([STEP, STEP, ANSWER, COORDINATOR, LEADER, 10 * LEADER]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(seconds=st.sampled_from([STEP, ANSWER, LEADER]))
    def run_without_faults(self, seconds: float) -> None:
        self.world.run_without_faults(seconds)

    @precondition(lambda self: self.world.calls)
    @rule(which=ANY, is_repeated=st.booleans())
    def deliver(self, which: int, is_repeated: bool) -> None:
        call = self.world.calls[which % len(self.world.calls)]
        if not is_repeated:
            self.world.calls.remove(call)
        self.world.deliver(call)

    @precondition(lambda self: self.world.calls)
    @rule(which=ANY, count=st.integers(1, 8))
    def lose(self, which: int, count: int) -> None:
        first = which % len(self.world.calls)
        del self.world.calls[first : first + count]

    @precondition(lambda self: self.world.requests)
    @rule(which=ANY, is_lost=st.booleans())
    def serve_request(self, which: int, is_lost: bool) -> None:
        request = self.world.requests.pop(which % len(self.world.requests))
        if not is_lost:
            self.world.serve(request)

    @rule(monitors=st.sets(st.integers(1, 5)))
    def shut_out(self, monitors: set[int]) -> None:
        self.world.shut_out = monitors

    @rule(monitor=st.integers(1, 5))
    def crash(self, monitor: int) -> None:
        self.world.crash(monitor)

    @rule(monitor=st.integers(1, 5))
    def leave(self, monitor: int) -> None:
        self.world.leave(monitor)

    @rule(monitor=st.integers(1, 5))
    def restore_bus(self, monitor: int) -> None:
        if monitor in self.world.monitors:
            self.world.call(monitor, "on_bus_restored")

    @rule(monitor=st.integers(1, 5))
    def start(self, monitor: int) -> None:
        if monitor in self.world.ids - self.world.monitors.keys():
            self.world.start(monitor)

    @rule(pairs=st.sets(st.frozensets(st.integers(1, 5), min_size=2, max_size=2)))
    def cut(self, pairs: set[frozenset[int]]) -> None:
        self.world.cut = pairs

    @rule()
    def heal(self) -> None:
        self.world.cut = set()

    @rule(monitor=st.integers(1, 5))
    def write(self, monitor: int) -> None:
        """Every monitor in the state LEADER writes; writes of a stale leader are refused."""
        bully = self.world.monitors.get(monitor)
        if bully is None or bully.state is not State.LEADER:
            return
        is_accepted = self.world.registry.write(bully.epoch)
        assert is_accepted == (self.world.leaders == [monitor])
        if not is_accepted:
            self.world.call(monitor, "on_epoch_lost")
            assert bully.state is not State.LEADER

    @invariant()
    def one_leader_at_most(self) -> None:
        if not hasattr(self, "world"):
            return
        assert len(self.world.leaders) <= 1
        for monitor, bully in self.world.monitors.items():
            if bully.state is State.LEADER:
                assert bully.leader == monitor
                assert self.world.registry.granted[bully.epoch] == monitor

    @invariant()
    def epochs_only_grow(self) -> None:
        if not hasattr(self, "world"):
            return
        for monitor, bully in self.world.monitors.items():
            life = monitor, self.world.lives[monitor]
            assert self.epochs.get(life, 0) <= bully.epoch <= self.world.registry.epoch
            self.epochs[life] = bully.epoch
        assert self.world.registry.written == sorted(self.world.registry.written)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.cut, self.world.shut_out = set(), set()
            if not self.world.monitors:
                self.world.start(1)
            check_converges(self.world)


TestElectionUnderFaults = ElectionUnderFaults.TestCase
TestElectionUnderFaults.settings = settings(stateful_step_count=50)


@given(size=st.integers(3, 5), keeps_leases=st.booleans(), data=st.data())
@settings(max_examples=20)
def test_the_highest_live_monitor_leads_after_crashes_and_restarts(size, keeps_leases, data):
    world = World(size, keeps_leases)
    check_converges(world)
    for monitor in data.draw(st.lists(st.sampled_from(sorted(world.ids)), max_size=4)):
        if monitor in world.monitors and len(world.monitors) > 1:
            world.crash(monitor)
        elif monitor not in world.monitors:
            world.start(monitor)
        check_converges(world)


def test_monitors_partitioned_from_a_live_leader_cannot_take_the_lead() -> None:
    """The registry refuses them, because the leader's lease has not expired."""
    world = World(3, keeps_leases=True)
    world.run_without_faults(SETTLING)
    epoch = world.registry.epoch
    world.cut = {frozenset({1, 3}), frozenset({2, 3})}
    world.run_without_faults(SETTLING)
    assert (world.registry.holder, world.registry.epoch) == (3, epoch)
    assert world.leaders == [3]
    world.cut = set()
    check_converges(world)
    assert world.registry.epoch == epoch


def test_a_monitor_without_the_registry_does_not_keep_a_lower_one_from_leading() -> None:
    world = World(3, keeps_leases=True)
    world.run_without_faults(SETTLING)
    world.shut_out = {3}
    world.run_without_faults(SETTLING)
    assert world.leaders == [2]
    epoch = world.registry.epoch
    world.run_without_faults(SETTLING)
    assert world.registry.epoch == epoch, "one election is enough"
    assert {bully.leader for bully in world.monitors.values()} == {2}
    world.shut_out = set()
    check_converges(world)

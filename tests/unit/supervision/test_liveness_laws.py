"""Invariants of liveness, against a simple model of the last heartbeat of each node.

The model has its own clock of observed time, which stops in pauses and when the clock is set back.
"""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kopitiam.supervision.liveness import Alarm, Backoff, Decision, Liveness, Recovered, Revive

TIMEOUT, STABLE, PAUSE, MAX_WAITING = 20.0, 60.0, 5.0, 3
BACKOFF = Backoff(10.0, 2.0, 25.0)
KINDS = {"gateway-1": "gateway", "pipeline-1": "pipeline", "monitor-1": "monitor"}
NODES = st.sampled_from(sorted(KINDS))
STEPS = st.sampled_from([0.25, 0.5, 1.0, 1.0, 2.0, 4.0, 5.0, -0.25, -1.0, -70.0, 5.25, 60.0, 1000.0])


@dataclass
class ModelNode:
    allowed: float = TIMEOUT  # silence until a decision is due
    quiet_since: float = 0.0
    alive_since: float | None = None
    attempts: int = 0
    epoch: int = 0
    is_alarmed: bool = False
    is_dead: bool = False
    is_stopped: bool = False


class LivenessUnderFaults(RuleBasedStateMachine):
    @initialize(start=st.sampled_from([0.0, 1e6]))
    def begin(self, start: float) -> None:
        self.machine = Liveness(
            KINDS,
            timeout_seconds=TIMEOUT,
            revive_backoff=BACKOFF,
            revive_limit=MAX_WAITING,
            stable_seconds=STABLE,
            pause_seconds=PAUSE,
        )
        self.latest = self.now = start
        self.watched = 0.0
        self.models = {name: ModelNode() for name in KINDS}
        assert self.machine.tick(start) == []

    def pass_time(self, seconds: float) -> None:
        """Move the clock; observed time advances only by gaps without a pause."""
        self.now += seconds
        gap = self.now - self.latest
        if 0 < gap <= PAUSE:
            self.watched += gap
        self.latest = self.now if abs(gap) > PAUSE else max(self.latest, self.now)

    @rule(seconds=STEPS)
    def tick(self, seconds: float) -> None:
        self.pass_time(seconds)
        decisions = self.machine.tick(self.now)
        assert [decision.node for decision in decisions] == [n for n in KINDS if self.is_due(n)]
        for decision in decisions:
            self.check(decision)

    @rule(count=st.integers(2, 30))
    def watch(self, count: int) -> None:
        for _ in range(count):
            self.tick(1.0)

    @rule(node=NODES, seconds=STEPS, news=st.integers(0, 1))
    def beat(self, node: str, seconds: float, news: int) -> None:
        self.pass_time(seconds)
        model = self.models[node]
        if model.is_stopped:
            news = 1  # with the same epoch it would be a late heartbeat
        model.epoch += news
        decisions = self.machine.on_heartbeat(node, KINDS[node], model.epoch, 7, None, self.now)
        assert decisions == ([Recovered(node)] if model.is_dead else [])
        model.quiet_since, model.allowed = self.watched, TIMEOUT
        model.is_dead = model.is_alarmed = model.is_stopped = False
        if model.alive_since is None:
            model.alive_since = self.watched
        elif self.watched - model.alive_since >= STABLE:
            model.attempts = 0

    @rule(node=NODES, count=st.integers(2, 40))
    def live(self, node: str, count: int) -> None:
        for _ in range(count):
            self.beat(node, 1.0, 0)
            self.tick(1.0)

    @rule(node=NODES, seconds=STEPS, behind=st.integers(1, 3))
    def beat_of_replaced_process(self, node: str, seconds: float, behind: int) -> None:
        self.pass_time(seconds)
        epoch = self.models[node].epoch - behind
        assert self.machine.on_heartbeat(node, KINDS[node], epoch, 7, None, self.now) == []

    @rule(node=NODES)
    def stop(self, node: str) -> None:
        epoch = self.models[node].epoch
        if epoch > 0:  # without a known epoch, late heartbeats cannot be recognized
            self.machine.on_stopped(node)
            self.models[node] = ModelNode(epoch=epoch, is_stopped=True)

    @rule(node=NODES, news=st.integers(0, 1))
    def take_lease(self, node: str, news: int) -> None:
        """No observed time passes, so no clock moves."""
        model = self.models[node]
        model.epoch += news
        self.machine.on_taken_over(node, model.epoch, self.latest)
        if model.is_stopped and news:
            self.models[node] = ModelNode(epoch=model.epoch, quiet_since=self.watched, allowed=TIMEOUT)

    @rule(node=NODES, ahead=STEPS)
    def report_a_revival(self, node: str, ahead: float) -> None:
        """No observed time passes, so no clock moves."""
        self.machine.on_revived(node, self.latest + ahead)
        model = self.models[node]
        if model.alive_since is None and not model.is_stopped:
            model.quiet_since = self.watched + (ahead if 0 < ahead <= PAUSE else 0)
            model.allowed = BACKOFF.after(max(model.attempts, 1))

    @rule(seconds=STEPS)
    def extend_deadlines(self, seconds: float) -> None:
        self.pass_time(seconds)
        self.machine.extend_deadlines(self.now)
        for model in self.models.values():
            if model.allowed - (self.watched - model.quiet_since) < TIMEOUT:
                model.quiet_since, model.allowed = self.watched, TIMEOUT

    def is_due(self, node: str) -> bool:
        model = self.models[node]
        is_overdue = self.watched - model.quiet_since >= model.allowed
        return is_overdue and not model.is_stopped and not model.is_alarmed

    def check(self, decision: Decision) -> None:
        model = self.models[decision.node]
        match decision:
            case Revive(_, attempt):
                assert attempt == model.attempts + 1 <= MAX_WAITING
                model.attempts, model.allowed = attempt, BACKOFF.after(attempt)
            case Alarm(_, reason):
                assert model.attempts == MAX_WAITING
                assert str(MAX_WAITING) in reason
                model.is_alarmed = True
        model.quiet_since, model.alive_since, model.is_dead = self.watched, None, True

    @invariant()
    def records_agree_with_the_model(self) -> None:
        if not hasattr(self, "models"):
            return
        records = self.machine.nodes(self.now)
        assert self.machine.nodes(self.latest + 1000) == records, "reading must not change the records"
        for record in records:
            model = self.models[record.name]
            is_silent = self.watched - model.quiet_since >= model.allowed
            assert (record.state == "stopped") == model.is_stopped
            assert (record.alarm is not None) == model.is_alarmed
            if record.state == "alive":
                assert model.alive_since is not None
                assert not is_silent
            elif record.state == "starting":
                assert model.alive_since is None
                assert not is_silent or model.is_alarmed


TestLivenessUnderFaults = LivenessUnderFaults.TestCase
TestLivenessUnderFaults.settings = settings(stateful_step_count=40)


@given(st.lists(st.tuples(st.sampled_from([0.25, 1.0, 2.0, 19.0, 300.0]), st.booleans()), max_size=80))
def test_a_node_whose_heartbeats_keep_coming_is_never_revived(steps):
    """However irregular the ticks are, and however long the monitor sleeps."""
    machine = Liveness({"p": "pipeline"}, timeout_seconds=TIMEOUT)
    now = last = 0.0
    for seconds, is_early in steps:
        now += seconds
        if is_early or now - last >= TIMEOUT:
            last = now
            assert machine.on_heartbeat("p", "pipeline", 1, 7, None, now) == []
        assert machine.tick(now) == []

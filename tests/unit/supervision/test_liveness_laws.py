"""The laws of liveness, against a plain account of when each node was last heard of.

The account keeps a clock of its own that runs only while somebody looks: it stands still in pauses, and when
the clock is set back.
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
class Account:
    allowed: float = TIMEOUT  # silence until something is to be done
    quiet_since: float = 0.0
    alive_since: float | None = None
    attempts: int = 0
    epoch: int = 0
    is_alarmed: bool = False
    is_dead: bool = False
    has_left: bool = False


class LivenessUnderTrouble(RuleBasedStateMachine):
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
        self.accounts = {name: Account() for name in KINDS}
        assert self.machine.tick(start) == []

    def pass_time(self, seconds: float) -> None:
        """What the clock tells next; the account's own clock follows it only while somebody looks."""
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
        account = self.accounts[node]
        if account.has_left:
            news = 1  # or it would be a late one
        account.epoch += news
        decisions = self.machine.on_heartbeat(node, KINDS[node], account.epoch, 7, None, self.now)
        assert decisions == ([Recovered(node)] if account.is_dead else [])
        account.quiet_since, account.allowed = self.watched, TIMEOUT
        account.is_dead = account.is_alarmed = account.has_left = False
        if account.alive_since is None:
            account.alive_since = self.watched
        elif self.watched - account.alive_since >= STABLE:
            account.attempts = 0

    @rule(node=NODES, count=st.integers(2, 40))
    def live(self, node: str, count: int) -> None:
        for _ in range(count):
            self.beat(node, 1.0, 0)
            self.tick(1.0)

    @rule(node=NODES, seconds=STEPS, behind=st.integers(1, 3))
    def zombie(self, node: str, seconds: float, behind: int) -> None:
        self.pass_time(seconds)
        epoch = self.accounts[node].epoch - behind
        assert self.machine.on_heartbeat(node, KINDS[node], epoch, 7, None, self.now) == []

    @rule(node=NODES)
    def leave(self, node: str) -> None:
        epoch = self.accounts[node].epoch
        if epoch > 0:  # of a node never heard of there is no telling which heartbeats are late
            self.machine.on_stopped(node)
            self.accounts[node] = Account(epoch=epoch, has_left=True)

    @rule(node=NODES, news=st.integers(0, 1))
    def enlist(self, node: str, news: int) -> None:
        """This is not to look, hence no clock moves."""
        account = self.accounts[node]
        account.epoch += news
        self.machine.on_taken_over(node, account.epoch, self.latest)
        if account.has_left and news:
            self.accounts[node] = Account(epoch=account.epoch, quiet_since=self.watched, allowed=TIMEOUT)

    @rule(node=NODES, ahead=STEPS)
    def report_a_revival(self, node: str, ahead: float) -> None:
        """This is not to look, hence no clock moves."""
        self.machine.on_revived(node, self.latest + ahead)
        account = self.accounts[node]
        if account.alive_since is None and not account.has_left:
            account.quiet_since = self.watched + (ahead if 0 < ahead <= PAUSE else 0)
            account.allowed = BACKOFF.after(max(account.attempts, 1))

    @rule(seconds=STEPS)
    def extend_deadlines(self, seconds: float) -> None:
        self.pass_time(seconds)
        self.machine.extend_deadlines(self.now)
        for account in self.accounts.values():
            if account.allowed - (self.watched - account.quiet_since) < TIMEOUT:
                account.quiet_since, account.allowed = self.watched, TIMEOUT

    def is_due(self, node: str) -> bool:
        account = self.accounts[node]
        is_overdue = self.watched - account.quiet_since >= account.allowed
        return is_overdue and not account.has_left and not account.is_alarmed

    def check(self, decision: Decision) -> None:
        account = self.accounts[decision.node]
        match decision:
            case Revive(_, attempt):
                assert attempt == account.attempts + 1 <= MAX_WAITING
                account.attempts, account.allowed = attempt, BACKOFF.after(attempt)
            case Alarm(_, reason):
                assert account.attempts == MAX_WAITING
                assert str(MAX_WAITING) in reason
                account.is_alarmed = True
        account.quiet_since, account.alive_since, account.is_dead = self.watched, None, True

    @invariant()
    def the_view_agrees(self) -> None:
        if not hasattr(self, "accounts"):
            return
        records = self.machine.nodes(self.now)
        assert self.machine.nodes(self.latest + 1000) == records, "to ask is not to look"
        for record in records:
            account = self.accounts[record.name]
            is_silent = self.watched - account.quiet_since >= account.allowed
            assert (record.state == "stopped") == account.has_left
            assert (record.alarm is not None) == account.is_alarmed
            if record.state == "alive":
                assert account.alive_since is not None
                assert not is_silent
            elif record.state == "starting":
                assert account.alive_since is None
                assert not is_silent or account.is_alarmed


TestLivenessUnderTrouble = LivenessUnderTrouble.TestCase
TestLivenessUnderTrouble.settings = settings(max_examples=100, stateful_step_count=40)


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

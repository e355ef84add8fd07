"""Invariants of the barrier: it never opens early, at most once, eventually, and never over wrong counts,
under lost messages, stale snapshots, lost decisions and crashes of the state machine.
"""

import re
from dataclasses import dataclass, field

from barrier_events import STAGES, TABLES, ends_of, reports_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kopitiam.contracts.messages import TableEnd, WorkerEnd, WorkerStats
from kopitiam.contracts.progress import Snapshot, Volume
from kopitiam.contracts.runs import RunState
from kopitiam.supervision.barrier import Barriers, Decision, FailRun, Forward, OpenBarrier, ReadSnapshot

Message = TableEnd | WorkerStats | WorkerEnd
Chunk = tuple[str, int]  # table, rows

FIGURES = re.compile(
    r"table (\w+), shard (\d+): expected (\d+) chunks? with (\d+) rows?,"
    r" processed (\d+) chunks? with (\d+) rows?"
)
SHARD_LOG = st.lists(st.tuples(st.sampled_from(TABLES), st.integers(0, 3)), max_size=5)
LOGS = st.lists(SHARD_LOG, min_size=1, max_size=3)
ANY = st.integers(0, 10**6)


@dataclass
class ModelRun:
    """A run in a registry that counts chunks correctly, except for one chunk with a fault."""

    name: str
    log: list[list[Chunk]]  # by shard
    fault: str | None = None
    faulty: tuple[int, int] | None = None  # shard and place in its log
    state: RunState = RunState.OPEN
    sealed: set[str] = field(default_factory=set)
    passed: dict[int, int] = field(default_factory=dict)
    processed: dict[str, dict[int, Volume]] = field(default_factory=dict)
    openings: int = 0
    error: str = ""

    def __post_init__(self) -> None:
        self.passed = dict.fromkeys(range(len(self.log)), 0)
        if self.fault == "twice" and self.faulty:  # of its table's chunks in the shard, the last
            shard, place = self.faulty
            table = self.log[shard][place][0]
            self.faulty = shard, max(i for i, chunk in enumerate(self.log[shard]) if chunk[0] == table)

    @property
    def whole(self) -> dict[str, dict[int, Volume]]:
        """Chunks and rows of each table and shard."""
        return {
            table: {
                shard: sum((Volume(1, rows) for of, rows in chunks if of == table), Volume())
                for shard, chunks in enumerate(self.log)
            }
            for table in TABLES
        }

    @property
    def expected(self) -> dict[str, dict[int, Volume]]:
        return {table: shards for table, shards in self.whole.items() if table in self.sealed}

    @property
    def pending(self) -> int:
        return sum(len(chunks) - self.passed[shard] for shard, chunks in enumerate(self.log))

    @property
    def is_processed(self) -> bool:
        return len(self.sealed) == len(TABLES) and self.pending == 0 and self.fault is None

    def snapshot(self) -> Snapshot:
        processed = {table: dict(shards) for table, shards in self.processed.items()}
        return Snapshot(self.name, self.state, STAGES.of_table, self.expected, processed, self.pending)

    def seal(self, table: str) -> list[Message]:
        self.sealed.add(table)
        if len(self.sealed) == len(TABLES) and self.state is RunState.OPEN:
            self.state = RunState.SEALED
        return [each for each in ends_of(self.expected, self.name) if each.table == table]

    def process(self, shard: int, most: int) -> list[Message]:
        """One batch: counters and position move together."""
        first = self.passed[shard]
        batch = self.log[shard][first : first + most]
        self.passed[shard] += len(batch)
        for place, (table, rows) in enumerate(batch, first):
            counted = self._counted(rows) if self.faulty == (shard, place) else Volume(1, rows)
            shards = self.processed.setdefault(table, {})
            shards[shard] = shards.get(shard, Volume()) + counted
        stages = {stage for table, _ in batch for stage in STAGES.of_table[table]}
        reports = reports_of(self.expected, self.processed, self.name)
        return [each for each in reports if each.shard == shard and each.stage in stages]

    def _counted(self, rows: int) -> Volume:
        return {"twice": Volume(2, 2 * rows), "missing": Volume(), "rows": Volume(1, rows + 1)}[self.fault]


@st.composite
def model_runs(draw: st.DrawFn, name: str) -> ModelRun:
    log = draw(LOGS)
    places = [(shard, place) for shard, chunks in enumerate(log) for place in range(len(chunks))]
    fault = draw(st.sampled_from([None, None, "twice", "missing", "rows"])) if places else None
    return ModelRun(name, log, fault, draw(st.sampled_from(places)) if fault else None)


class BarrierUnderFaults(RuleBasedStateMachine):
    """Messages are lost, repeated, late and out of order; snapshots are stale when they are handled;
    decisions are lost before they are written; the machine crashes at any step and restarts from the
    registry."""

    @initialize(first=model_runs("first"), second=model_runs("second"))
    def begin(self, first: ModelRun, second: ModelRun) -> None:
        self.runs = {run.name: run for run in (first, second)}
        self.machine = Barriers()
        self.in_flight: list[Message] = []
        self.snapshots: list[Snapshot] = []
        self.writes_to_lose = 0

    # -- the run goes on

    @rule(run=st.sampled_from(["first", "second"]), table=st.sampled_from(TABLES))
    def seal(self, run: str, table: str) -> None:
        if table not in self.runs[run].sealed:
            self.in_flight += self.runs[run].seal(table)

    @rule(run=st.sampled_from(["first", "second"]))
    def seal_all(self, run: str) -> None:
        for table in TABLES:
            self.seal(run, table)

    @rule(run=st.sampled_from(["first", "second"]), shard=ANY, most=st.integers(1, 4))
    def process(self, run: str, shard: int, most: int) -> None:
        self.in_flight += self.runs[run].process(shard % len(self.runs[run].log), most)

    @precondition(lambda self: any(run.state is RunState.FINAL for run in self.runs.values()))
    @rule()
    def answer(self) -> None:
        for run in self.runs.values():
            run.state = RunState.DONE if run.state is RunState.FINAL else run.state

    @rule(run=st.sampled_from(["first", "second"]), sure=st.integers(0, 9))
    def force_end(self, run: str, sure: int) -> None:
        if sure == 0 and not self.runs[run].state.is_over:
            self.runs[run].state = RunState.ENDED

    # -- what the machine receives

    @precondition(lambda self: self.in_flight)
    @rule(which=ANY, is_repeated=st.booleans())
    def deliver(self, which: int, is_repeated: bool) -> None:
        message = self.in_flight[which % len(self.in_flight)]
        if not is_repeated:
            self.in_flight.remove(message)
        for decision in self.machine.handle(message):
            assert isinstance(decision, ReadSnapshot), "a message alone decides nothing"
            self.carry_out(decision)

    @precondition(lambda self: self.in_flight)
    @rule()
    def deliver_all(self) -> None:
        while self.in_flight:
            self.deliver(0, False)

    @precondition(lambda self: self.in_flight)
    @rule(which=ANY)
    def lose(self, which: int) -> None:
        del self.in_flight[which % len(self.in_flight)]

    @rule(run=st.sampled_from(["first", "second"]))
    def read_snapshot(self, run: str) -> None:
        self.snapshots.append(self.runs[run].snapshot())

    @precondition(lambda self: self.snapshots)
    @rule()
    def handle_snapshot(self) -> None:
        for decision in self.machine.handle(self.snapshots.pop(0)):
            self.carry_out(decision)

    @rule()
    def lose_the_next_decision(self) -> None:
        self.writes_to_lose = 1

    @rule()
    def crash(self) -> None:
        self.machine = Barriers()
        self.snapshots = [run.snapshot() for run in self.runs.values() if not run.state.is_over]
        while self.snapshots:
            self.handle_snapshot()

    # -- what it decides

    def carry_out(self, decision: Decision) -> None:
        run = self.runs[decision.run]
        match decision:
            case ReadSnapshot():
                for following in self.machine.handle(run.snapshot()):
                    self.carry_out(following)
                return
            case OpenBarrier():
                assert run.is_processed, "the barrier opened early, or over wrong figures"
            case FailRun(_, reason):
                assert run.fault is not None, reason
                check_figures(run, reason)
            case Forward():
                assert run.openings == 1
                return
        if self.writes_to_lose:
            self.writes_to_lose -= 1
        elif isinstance(decision, FailRun) and not run.state.is_over:
            run.state, run.error = RunState.FAILED, decision.reason
        elif isinstance(decision, OpenBarrier) and run.state is RunState.SEALED:
            run.state = RunState.FINAL
            run.openings += 1

    @invariant()
    def opens_once_at_most(self) -> None:
        for run in getattr(self, "runs", {}).values():
            assert run.openings <= 1
            assert run.fault is None or run.openings == 0

    def teardown(self) -> None:
        """Process the rest and lose all its messages: snapshots alone must bring the end."""
        for run in getattr(self, "runs", {}).values():
            ended_by_force = run.state is RunState.ENDED
            for table in TABLES:
                run.seal(table)
            for shard, chunks in enumerate(run.log):
                run.process(shard, len(chunks))
            self.writes_to_lose = 0
            for _ in range(2):
                self.snapshots = [run.snapshot()]
                self.handle_snapshot()
            if not ended_by_force:
                assert (run.openings == 1) == (run.fault is None)
                assert (run.state is RunState.FAILED) == (run.fault is not None) == bool(run.error)


def check_figures(run: ModelRun, reason: str) -> None:
    match = FIGURES.match(reason)
    assert match is not None, reason
    table, shard, *figures = match.groups()
    due = run.whole[table][int(shard)]
    assert (int(figures[0]), int(figures[1])) == (due.chunks, due.rows)
    assert (int(figures[2]), int(figures[3])) != (due.chunks, due.rows)


TestBarrierUnderFaults = BarrierUnderFaults.TestCase
TestBarrierUnderFaults.settings = settings(stateful_step_count=40)


# -- messages that all arrive

VOLUMES = st.just(Volume()) | st.builds(Volume, st.integers(1, 3), st.integers(0, 5))
WHOLE = st.fixed_dictionaries(
    {table: st.dictionaries(st.integers(0, 2), VOLUMES, max_size=3) for table in TABLES}
)


@given(WHOLE, st.data())
def test_in_any_order_and_repetition_a_snapshot_is_read_by_the_last_message(whole, data):
    """The registry has all counts by then, so the barrier opens without waiting for reconciliation."""
    messages = [*ends_of(whole), *reports_of(whole, whole)]
    extra = data.draw(st.lists(st.sampled_from(messages), max_size=10))
    barriers = Barriers()
    run = messages[0].run
    processed = Snapshot(run, RunState.SEALED, STAGES.of_table, whole, whole, 0)
    not_sealed = Snapshot(run, RunState.OPEN, STAGES.of_table, {}, {}, 0)
    reads = 0
    order = data.draw(st.permutations([*messages, *extra]))
    for message in order:
        for decision in barriers.handle(message):
            reads += 1
            assert decision == ReadSnapshot(run)
            if reads == 1 and not has_all(order[: order.index(message) + 1], messages):
                barriers.handle(not_sealed)  # which discards the messages before it
                break
    if reads == 1:
        for message in messages:
            reads += len(barriers.handle(message))
    assert reads == 2
    assert barriers.handle(processed) == [OpenBarrier(run)]


def has_all(received: list[Message], messages: list[Message]) -> bool:
    return all(message in received for message in messages)


@given(WHOLE, st.data())
def test_messages_alone_never_open_or_fail_a_run(whole, data):
    messages: list[Message] = [*ends_of(whole), *reports_of({}, whole), *reports_of(whole, whole)]
    barriers = Barriers()
    for message in data.draw(st.lists(st.sampled_from(messages), max_size=40)):
        assert all(isinstance(decision, ReadSnapshot) for decision in barriers.handle(message))

"""The coordinator over a real registry and bus: decisions on messages and on reconciliation."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from barrier_events import ends_of, reports_of

from catalog_tables import TABLES
from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.batches import Batch, Processed
from kopitiam.contracts.errors import BusUnavailable, RegistryUnavailable, StaleEpoch
from kopitiam.contracts.messages import (
    FINAL_QUEUE,
    BarrierForward,
    ForceEnd,
    Message,
    TableEnd,
    WorkerStats,
    end_topic,
    progress_topic,
)
from kopitiam.contracts.runs import RunState
from kopitiam.registry import Fence, open_registry
from kopitiam.supervision import coordinator
from kopitiam.supervision.actions import LeaderAction, read_actions
from kopitiam.supervision.coordinator import (
    FORWARD_AGAIN_SECONDS,
    RECONCILE_SECONDS,
    Coordinator,
)
from waiting import PATIENCE_SECONDS, eventually

SHARDS, CHUNKS, ROWS = 2, 3, 10  # chunks of each table, rows of each chunk
FOR_LONG = 1e9
UNKNOWN_RUN = "0" * 24


class Clock:
    """A clock that only the test advances."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Fleet:
    """A registry, a bus, queues of what pipelines and nodes receive, and a leader."""

    def __init__(self, path) -> None:
        self.clock, self.bus = Clock(), MemoryBus()
        self.are_gateways_alive = True
        self.registry_ahead = 0.0  # seconds, of the leader's own clock
        self.registry = open_registry("sqlite", path, lambda: self.clock() + self.registry_ahead)
        self.leader = self.elect("monitor-1")
        self._forwarded: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.bus.consume(FINAL_QUEUE, self._forwarded.put)
        self.bus.listen(self._ended.put)

    def elect(self, monitor: str) -> Coordinator:
        self.fence = Fence("leader", self.registry.take_over("leader", monitor, FOR_LONG), monitor)
        return Coordinator(
            self.registry,
            self.bus,
            self.fence,
            are_gateways_alive=lambda: self.are_gateways_alive,
            steady=self.clock,
        )

    def upload(self, is_sealed: bool = True, lease_seconds: float = FOR_LONG) -> str:
        opened = self.registry.open_run(
            {}, "", "me", idempotency_key=None, lease_seconds=lease_seconds, shards=SHARDS
        )
        run = opened.run.run
        for table in TABLES:
            for number in range(CHUNKS):
                self.registry.register_chunk(run, table, number, digest="d", rows=ROWS, bytes=1, rejected=0)
            if is_sealed:
                self.registry.end_table(run, table, CHUNKS, CHUNKS * ROWS)
        return run

    def process(self, lost: int = 0, doubled: int = 0) -> None:
        """Process the whole log in one batch that counts some chunks of the last table too few or too many
        times."""
        spans = {
            shard: (after, self.registry.last_sequence(shard))
            for shard, after in self.registry.positions(range(SHARDS)).items()
        }
        log = [chunk for shard, span in spans.items() for chunk in self.registry.read_span(shard, *span)]
        counts = dict.fromkeys(((chunk.run, chunk.table, chunk.shard) for chunk in log), 0)
        for chunk in log:
            counts[chunk.run, chunk.table, chunk.shard] += 1
        counts[log[-1].run, log[-1].table, log[-1].shard] += doubled - lost
        processed = tuple(Processed(*key, count, count * ROWS) for key, count in counts.items())
        self.registry.commit_batch(Batch("query", spans[0][0], spans, processed))

    def publish_progress(self, run: str) -> None:
        """Publish the messages of gateways and pipelines about a run."""
        account = self.registry.run_account(run)
        for end in ends_of(account.expected, run):
            self.bus.publish(end_topic(end.table), end)
        for report in reports_of(account.expected, account.processed, run):
            self.bus.publish(progress_topic(report.stage, report.shard), report)

    def state(self, run: str) -> RunState:
        return self.registry.get_run(run).state

    def forwarded(self) -> Message:
        return self._forwarded.get(timeout=PATIENCE_SECONDS)

    def ended(self) -> Message:
        return self._ended.get(timeout=PATIENCE_SECONDS)

    def is_quiet(self) -> bool:
        """Whether no other message is queued: a marker message comes first."""
        marker = BarrierForward(run=UNKNOWN_RUN, epoch=0)
        self.bus.send(FINAL_QUEUE, marker)
        self.bus.broadcast(marker)
        return self.forwarded() == self.ended() == marker

    @contextmanager
    def without_subscriptions(self, monkeypatch) -> Iterator[Callable[[], None]]:
        """Refuses subscriptions until the yielded function is called."""

        def refuse(*_):
            raise BusUnavailable("gone")

        with monkeypatch.context() as broken:
            broken.setattr(self.bus, "subscribe", refuse)
            yield broken.undo

    @contextmanager
    def coordinating(self) -> Iterator[list[float]]:
        """Runs the coordinator on a thread, which reconciles once; yields the times of reconciliation."""
        reconciled_at: list[float] = []
        first = threading.Event()
        reconcile = self.leader.reconcile

        def recorded_reconcile() -> None:
            reconcile()
            reconciled_at.append(self.clock.now)
            first.set()

        self.leader.reconcile = recorded_reconcile
        running = threading.Thread(target=self.leader.run)
        running.start()
        try:
            assert first.wait(PATIENCE_SECONDS)
            yield reconciled_at
        finally:
            self.leader.stop()
            running.join(PATIENCE_SECONDS)
        assert not running.is_alive()


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.bus.close()
    fleet.registry.close()


def test_a_barrier_opens_on_the_last_message_without_waiting_for_reconciliation(fleet):
    with fleet.coordinating() as reconciled_at:
        run, other = fleet.upload(), fleet.upload(is_sealed=False)
        fleet.publish_progress(run)
        fleet.process()
        assert (fleet.state(run), fleet.is_quiet()) == (RunState.SEALED, True)
        for each in (other, run, run):  # repeated messages change nothing
            fleet.publish_progress(each)
        assert fleet.forwarded() == BarrierForward(run=run, epoch=fleet.fence.epoch)
        assert (fleet.state(run), fleet.state(other)) == (RunState.FINAL, RunState.OPEN)
        assert fleet.is_quiet()
    assert len(reconciled_at) == 1


def test_reconciliation_opens_barriers_whose_messages_were_all_lost(fleet):
    run, other = fleet.upload(), fleet.upload()
    fleet.leader.reconcile()
    assert (fleet.state(run), fleet.is_quiet()) == (RunState.SEALED, True)
    fleet.process()
    late = fleet.upload()

    fleet.leader.reconcile()

    assert {fleet.forwarded().run, fleet.forwarded().run} == {run, other}
    assert [fleet.state(each) for each in (run, other, late)] == [
        RunState.FINAL,
        RunState.FINAL,
        RunState.SEALED,
    ]


def test_a_leader_logs_each_barrier_and_each_end_with_its_epoch(fleet, caplog):
    whole, lost, wrong = fleet.upload(), fleet.upload(is_sealed=False, lease_seconds=5), fleet.upload()
    fleet.process(doubled=1)  # of the last one
    fleet.leader.reconcile()
    fleet.clock.now += 5
    fleet.leader.reconcile()
    assert sorted(read_actions(caplog.text)) == sorted(
        [
            LeaderAction(fleet.fence.epoch, "opens barrier of", whole),
            LeaderAction(fleet.fence.epoch, "force-ends", lost),
            LeaderAction(fleet.fence.epoch, "fails", wrong),
        ]
    )


def test_an_unfinished_final_run_is_forwarded_again(fleet):
    run = fleet.upload()
    fleet.process()
    fleet.leader.reconcile()
    assert fleet.forwarded().run == run
    fleet.clock.now += FORWARD_AGAIN_SECONDS - 0.1
    fleet.leader.reconcile()
    assert fleet.is_quiet()
    fleet.clock.now += 0.1
    fleet.leader.reconcile()
    assert fleet.forwarded().run == run

    fleet.leader = fleet.elect("monitor-2")  # a new leader does not know which runs were forwarded
    fleet.leader.reconcile()
    assert fleet.forwarded() == BarrierForward(run=run, epoch=fleet.fence.epoch)

    fleet.registry.publish_results(run, "attempt", {})
    fleet.clock.now += 2 * FORWARD_AGAIN_SECONDS
    fleet.leader.reconcile()
    assert fleet.is_quiet()


def test_a_forward_that_the_bus_refused_is_sent_later(fleet, monkeypatch):
    run = fleet.upload()
    fleet.process()
    with monkeypatch.context() as broken:

        def refuse(*_):
            raise BusUnavailable("gone")

        broken.setattr(fleet.bus, "send", refuse)
        fleet.leader.reconcile()
    assert fleet.state(run) is RunState.FINAL
    fleet.leader.reconcile()
    assert fleet.forwarded().run == run


@pytest.mark.parametrize(
    ("wrong", "figures"),
    [
        ({"lost": 1}, "expected 1 chunk with 10 rows, processed 0 chunks with 0 rows, and none is pending"),
        ({"doubled": 1}, "expected 1 chunk with 10 rows, processed 2 chunks with 20 rows"),
    ],
    ids=["missing", "too many"],
)
def test_a_run_with_contradictory_counts_fails_with_the_counts(fleet, wrong, figures):
    run = fleet.upload()
    fleet.process(**wrong)

    fleet.leader.reconcile()

    failed = fleet.registry.get_run(run)
    last = list(TABLES)[-1]
    assert (failed.state, failed.error) == (RunState.FAILED, f"table {last}, shard 1: {figures}")
    assert fleet.ended() == ForceEnd(runs=(run,), reason=failed.error)
    fleet.leader.reconcile()
    assert fleet.is_quiet()


def test_a_run_with_more_chunks_than_expected_fails_on_the_message_without_reconciliation(fleet):
    with fleet.coordinating() as reconciled_at:
        run = fleet.upload()
        fleet.process(doubled=1)
        fleet.publish_progress(run)
        force_end = fleet.ended()
        assert len(reconciled_at) == 1, "the message triggered it"
    assert force_end.runs == (run,)
    assert "shard 1: expected 1 chunk with 10 rows, processed 2 chunks with 20 rows" in force_end.reason
    assert (fleet.state(run), fleet.registry.get_run(run).error) == (RunState.FAILED, force_end.reason)


def test_forged_messages_neither_open_a_barrier_nor_fail_a_run(fleet):
    """The messages report all chunks as processed, then too many; in the registry every chunk is pending."""
    run = fleet.upload()
    account = fleet.registry.run_account(run)
    with fleet.coordinating():
        for message in (
            *ends_of(account.expected, run),
            *reports_of(account.expected, account.expected, run),
        ):
            topic = end_topic(message.table) if isinstance(message, TableEnd) else _topic(message)
            fleet.bus.publish(topic, message)
        too_many = WorkerStats(run=run, stage="join_users", shard=1, expected=1, processed=2, rows=20)
        fleet.bus.publish(_topic(too_many), too_many)
        fleet.bus.publish(end_topic("users"), TableEnd(run=run, table="users", shards={0: (9, 9)}))
        other = fleet.upload()  # its messages come after the forged ones
        fleet.process()
        fleet.publish_progress(other)
        assert fleet.forwarded().run == other
    assert fleet.state(run) is RunState.SEALED
    fleet.elect("monitor-2").reconcile()
    assert {fleet.forwarded().run for _ in range(2)} == {run, other}


@pytest.mark.parametrize("seconds", [5, 30, 61, 3600])
@pytest.mark.parametrize("direction", [1, -1], ids=["forward", "back"])
def test_a_jump_of_the_registry_clock_ends_no_run_of_a_live_client(fleet, seconds, direction):
    sending, silent = (fleet.upload(is_sealed=False, lease_seconds=60) for _ in range(2))
    fleet.leader.reconcile()
    fleet.clock.now += RECONCILE_SECONDS
    fleet.leader.reconcile()
    fleet.registry_ahead = direction * seconds
    for passed in range(0, 58, 2):
        fleet.leader.reconcile()
        fleet.clock.now += RECONCILE_SECONDS
        if passed % 20 == 0:
            fleet.registry.renew_lease(sending, 60)
    assert {fleet.state(run) for run in (sending, silent)} == {RunState.OPEN}
    if direction > 0:  # after a jump back, earlier leases last longer
        for _ in range(5):
            fleet.clock.now += RECONCILE_SECONDS
            fleet.leader.reconcile()
        assert (fleet.state(sending), fleet.state(silent)) == (RunState.OPEN, RunState.ENDED)


def test_a_clock_jump_between_reading_and_ending_expired_runs_ends_no_run(fleet, monkeypatch):
    run = fleet.upload(is_sealed=False, lease_seconds=60)
    fleet.leader.reconcile()
    expired_runs = fleet.registry.expired_runs

    def jumping():
        fleet.registry_ahead = 3600
        return expired_runs()

    monkeypatch.setattr(fleet.registry, "expired_runs", jumping)
    fleet.clock.now += RECONCILE_SECONDS
    fleet.leader.reconcile()
    fleet.clock.now += RECONCILE_SECONDS
    fleet.leader.reconcile()
    assert fleet.state(run) is RunState.OPEN


def _topic(report):
    return progress_topic(report.stage, report.shard)


def test_a_superseded_leader_raises_stale_epoch_and_changes_nothing(fleet):
    ready, lost = fleet.upload(), fleet.upload(is_sealed=False, lease_seconds=1)
    fleet.process()
    fleet.elect("monitor-2")
    with pytest.raises(StaleEpoch):
        fleet.leader.run()
    fleet.clock.now += 2  # the client lease of the other run expires too
    with pytest.raises(StaleEpoch):
        fleet.leader.reconcile()
    assert (fleet.state(ready), fleet.state(lost)) == (RunState.SEALED, RunState.OPEN)
    assert fleet.is_quiet()


def test_a_coordinator_thread_with_a_stale_epoch_ends_and_sets_is_stale(fleet):
    fleet.upload()
    fleet.process()
    old = fleet.fence
    fleet.elect("monitor-2")
    coordination = Coordinator(fleet.registry, fleet.bus, old)
    coordination.start()
    assert coordination.is_stale.wait(PATIENCE_SECONDS)
    coordination.stop()


def test_an_unexpected_error_does_not_end_the_coordinator_thread(fleet, monkeypatch, caplog):
    run = fleet.upload()
    fleet.process()
    snapshots = fleet.registry.snapshots
    calls: list[str] = []

    def fail_once():
        calls.append(run)
        if len(calls) == 1:
            raise KeyError("unexpected")
        return snapshots()

    monkeypatch.setattr(fleet.registry, "snapshots", fail_once)
    monkeypatch.setattr(coordinator, "RECONCILE_SECONDS", 0.01)
    coordination = Coordinator(fleet.registry, fleet.bus, fleet.fence)
    coordination.start()
    assert fleet.forwarded().run == run
    coordination.stop()
    assert not coordination.is_stale.is_set()
    assert "KeyError: 'unexpected'" in caplog.text


def test_the_run_of_a_lost_client_is_ended_and_force_end_is_broadcast(fleet):
    lost = fleet.upload(is_sealed=False, lease_seconds=5)
    sealed, alive = fleet.upload(lease_seconds=5), fleet.upload(is_sealed=False, lease_seconds=60)
    fleet.leader.reconcile()
    fleet.clock.now += 5

    fleet.leader.reconcile()

    ended = fleet.ended()
    assert (ended.runs, fleet.state(lost)) == ((lost,), RunState.ENDED)
    assert ended.reason == fleet.registry.get_run(lost).error
    assert (fleet.state(sealed), fleet.state(alive)) == (RunState.SEALED, RunState.OPEN)
    fleet.leader.reconcile()
    assert fleet.is_quiet()


def test_a_new_leader_gives_every_client_a_full_lease_first(fleet):
    run, longer = (fleet.upload(is_sealed=False, lease_seconds=seconds) for seconds in (5, 60))
    fleet.clock.now += 50

    fleet.leader.reconcile()

    assert (fleet.state(run), fleet.is_quiet()) == (RunState.OPEN, True)
    assert fleet.registry.get_run(longer).lease_expires_at == fleet.clock.now + 60
    fleet.clock.now += 4
    fleet.leader.reconcile()
    assert fleet.state(run) is RunState.OPEN
    fleet.clock.now += 1
    fleet.leader.reconcile()
    assert [fleet.state(each) for each in (run, longer)] == [RunState.ENDED, RunState.OPEN]


@contextmanager
def without_registry(fleet, monkeypatch) -> Iterator[None]:
    def refuse(*_):
        raise RegistryUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(fleet.registry, "snapshots", refuse)
        yield


@contextmanager
def without_gateway(fleet, monkeypatch) -> Iterator[None]:
    del monkeypatch
    fleet.are_gateways_alive = False
    yield
    fleet.are_gateways_alive = True


@pytest.mark.parametrize("outage", [without_registry, without_gateway])
def test_no_client_lease_expires_during_an_outage(fleet, monkeypatch, outage):
    run = fleet.upload(is_sealed=False, lease_seconds=5)
    fleet.leader.reconcile()
    with outage(fleet, monkeypatch):
        for _ in range(3):
            fleet.clock.now += RECONCILE_SECONDS
            fleet.leader.reconcile()
    fleet.leader.reconcile()
    assert (fleet.state(run), fleet.is_quiet()) == (RunState.OPEN, True)
    fleet.clock.now += 5
    fleet.leader.reconcile()
    assert fleet.ended().runs == (run,)


@pytest.mark.parametrize("leap", [1000, -500], ids=["paused", "clock set back"])
def test_no_client_lease_expires_during_a_pause_of_the_leader(fleet, leap):
    run = fleet.upload(is_sealed=False, lease_seconds=5)
    fleet.leader.reconcile()
    fleet.clock.now += leap

    fleet.leader.reconcile()

    assert (fleet.state(run), fleet.is_quiet()) == (RunState.OPEN, True)
    fleet.clock.now += 5
    fleet.leader.reconcile()
    assert fleet.state(run) is (RunState.ENDED if leap > 0 else RunState.OPEN)


def test_a_run_is_ended_even_if_force_end_cannot_be_broadcast(fleet, monkeypatch):
    lost, ready = fleet.upload(is_sealed=False, lease_seconds=1), fleet.upload()
    fleet.process()
    fleet.leader._check_client_leases()
    fleet.clock.now += 1

    def refuse(*_):
        raise BusUnavailable("gone")

    monkeypatch.setattr(fleet.bus, "broadcast", refuse)
    fleet.leader.reconcile()
    assert [fleet.state(run) for run in (lost, ready)] == [RunState.ENDED, RunState.FINAL]


@pytest.mark.parametrize("call", ["snapshots", "open_barrier"])
def test_a_decision_is_repeated_after_a_registry_outage(fleet, monkeypatch, call):
    run = fleet.upload()
    fleet.process()
    with monkeypatch.context() as broken:

        def refuse(*_):
            raise RegistryUnavailable("gone")

        broken.setattr(fleet.registry, call, refuse)
        fleet.leader.reconcile()
    assert (fleet.state(run), fleet.is_quiet()) == (RunState.SEALED, True)
    fleet.leader.reconcile()
    assert fleet.forwarded().run == run


def test_a_leader_elected_during_a_bus_outage_opens_barriers_and_subscribes_later(fleet, monkeypatch):
    first = fleet.upload()
    fleet.process()
    with fleet.without_subscriptions(monkeypatch) as restore_bus, fleet.coordinating() as reconciled_at:
        assert fleet.forwarded().run == first  # found in the registry
        restore_bus()
        fleet.clock.now += RECONCILE_SECONDS
        fleet.leader._inbox.put(None)  # wakes it
        eventually(lambda: len(reconciled_at) > 1)
        second = fleet.upload()
        fleet.process()
        fleet.publish_progress(second)
        assert fleet.forwarded().run == second
        assert len(reconciled_at) == 2

"""A registry restored from a backup: epochs go back, so that two processes of a node may have the same epoch.
Only the process that the registry names as the holder may write.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert, select

from kopitiam.contracts.batches import Batch, Partial
from kopitiam.contracts.errors import StaleEpoch
from kopitiam.contracts.messages import NodeRecord
from kopitiam.contracts.runs import RunState
from kopitiam.registry import Fence, Registry
from kopitiam.registry.schema import metadata

NAME = "pipeline-1"
LEADER = "leader"


class BackUp:
    """All rows of all tables, as `pg_dump` or a copy of the file has them."""

    def __init__(self, registry: Registry) -> None:
        self._engine = registry._engine
        with self._engine.begin() as connection:
            self._rows = {
                table: [row._asdict() for row in connection.execute(select(table))]
                for table in metadata.sorted_tables
            }

    def put_back(self) -> None:
        with self._engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
            for table, rows in self._rows.items():
                if rows:
                    connection.execute(insert(table), rows)


def take(registry: Registry, name: str, life: str) -> Fence:
    return Fence(name, registry.take_over(name, life, 60), life)


@pytest.fixture
def lives(registry: Registry) -> tuple[Fence, Fence]:
    """A process from before the restore and one from after it, with the same epoch."""
    take(registry, NAME, "life before the back-up")
    back_up = BackUp(registry)
    cut_off = take(registry, NAME, "life that the back-up does not know")
    back_up.put_back()
    current = take(registry, NAME, "life after the restore")
    assert cut_off.epoch == current.epoch
    return cut_off, current


@contextmanager
def refused() -> Iterator[None]:
    with pytest.raises(StaleEpoch):
        yield


def final_run(registry: Registry, open_run: Callable[..., str]) -> str:
    run = open_run()
    registry.move(run, RunState.SEALED)
    registry.move(run, RunState.FINAL)
    return run


Write = Callable[[Registry, str, Fence], Any]
WRITES: dict[str, Write] = {
    "a batch": lambda registry, _, fence: registry.commit_batch(Batch("q", 0, {}), fence),
    "a failure": lambda registry, run, fence: registry.move(run, RunState.FAILED, "wrong", fence),
    "Force End": lambda registry, run, fence: registry.force_end(run, "lost", fence=fence),
    "leases of clients": lambda registry, _, fence: registry.renew_open_runs(fence),
    "a verdict": lambda registry, run, fence: registry.fail_if_contradictory(run, fence),
    "a merge": lambda registry, run, fence: registry.replace_partials(
        run, ["old"], Partial(run, "new"), fence
    ),
    "a node": lambda registry, _, fence: registry.report_node(
        NodeRecord(NAME, "pipeline", 1, None, "alive", 0.0, fence.epoch), fence
    ),
    "the end of a node": lambda registry, _, fence: registry.delete_node(NAME, fence),
    "a claim": lambda registry, run, fence: registry.claim_final(run, fence),
}


@pytest.mark.parametrize("what", WRITES)
def test_of_two_processes_with_the_same_epoch_only_the_holder_writes(
    registry, open_run, lives, what: str
) -> None:
    cut_off, current = lives
    run = final_run(registry, open_run) if what == "a claim" else open_run()
    with refused():
        WRITES[what](registry, run, cut_off)
    WRITES[what](registry, run, current)


def test_only_the_holder_of_the_epoch_renews_holds_and_releases(registry, lives) -> None:
    cut_off, current = lives
    assert not registry.holds(cut_off)
    assert not registry.renew(cut_off.name, cut_off.holder, cut_off.epoch, 60)
    assert not registry.release(cut_off.name, cut_off.holder, cut_off.epoch)
    assert registry.holds(current)
    assert registry.renew(current.name, current.holder, current.epoch, 60)
    assert registry.release(current.name, current.holder, current.epoch)


def test_an_epoch_larger_than_the_restored_one_writes_nothing(registry, open_run) -> None:
    back_up = BackUp(registry)
    for life in range(5):
        cut_off = take(registry, NAME, f"life {life}")
    back_up.put_back()
    current = take(registry, NAME, "life after the restore")
    assert cut_off.epoch > current.epoch
    with refused():
        registry.force_end(open_run(), "", fence=cut_off)
    assert registry.force_end(open_run(), "", fence=current)


def test_a_claim_by_an_earlier_process_of_the_same_epoch_is_replaced(registry, open_run, lives) -> None:
    """The backup may be younger than the claim: then it names a process that holds no lease."""
    _, current = lives
    run = final_run(registry, open_run)
    assert registry.claim_final(run, current)
    back_up = BackUp(registry)
    later = take(registry, NAME, "life of the next epoch")
    back_up.put_back()
    successor = take(registry, NAME, "its twin of the same epoch")
    assert later.epoch == successor.epoch
    with refused():
        registry.claim_final(run, later)
    assert registry.claim_final(run, successor)
    registry.release_claim(run, later)
    registry.release_claim(run, replace(successor, holder=current.holder))
    with refused():
        registry.publish_results(run, "of the twin", {}, later)
    with refused():
        registry.publish_results(run, "of the first", {}, current)
    registry.publish_results(run, "of the successor", {}, successor)
    published = registry.results(run)
    assert published is not None
    assert published.attempt == "of the successor"


def test_a_barrier_is_opened_only_by_the_leader_that_holds_the_epoch(registry, open_run) -> None:
    run = open_run()
    for table in registry.table_states(run):
        registry.end_table(run, table, 0, 0)
    back_up = BackUp(registry)
    take_over = lambda holder: registry.take_over_if_higher(LEADER, 3, holder, 60)  # noqa: E731
    cut_off = Fence(LEADER, take_over("a"), registry.leases()[LEADER].holder)
    back_up.put_back()
    current = Fence(LEADER, take_over("b"), registry.leases()[LEADER].holder)
    assert cut_off.epoch == current.epoch
    with refused():
        registry.open_barrier(run, cut_off)
    assert registry.open_barrier(run, current)


def test_a_node_of_the_restored_registry_is_shown_though_a_larger_epoch_was_shown_before(registry) -> None:
    shown = NodeRecord(NAME, "pipeline", 1, None, "alive", 0.0, epoch=9)
    registry.report_node(shown)
    current = take(registry, NAME, "life after the restore")
    mine = replace(shown, pid=2, epoch=current.epoch)
    assert not registry.report_node(mine)
    assert registry.report_node(mine, current)
    assert registry.nodes() == [mine]

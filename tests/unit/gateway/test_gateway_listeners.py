"""The bus wakes those who wait for the end of a run, from another thread."""

import asyncio
import threading

from kopitiam.contracts.messages import WorkerEnd, WorkerStats
from kopitiam.gateway.listeners import RunEndWaiters


def end_of(run: str) -> WorkerEnd:
    return WorkerEnd(run=run, stage="server_results", shard=0, processed=1, rows=5)


def on_another_thread(waiters: RunEndWaiters, run: str) -> None:
    thread = threading.Thread(target=waiters.on_message, args=(end_of(run),))
    thread.start()
    thread.join()


def test_the_end_of_a_run_wakes_all_its_waiters_and_no_others() -> None:
    waiters = RunEndWaiters()

    async def wait() -> list[bool]:
        with waiters.waiting("a") as one, waiters.waiting("a") as two, waiters.waiting("b") as other:
            await asyncio.to_thread(on_another_thread, waiters, "a")
            async with asyncio.timeout(20):
                await asyncio.gather(one.wait(), two.wait())
            return [one.is_set(), two.is_set(), other.is_set()]

    assert asyncio.run(wait()) == [True, True, False]


def test_nothing_is_kept_after_the_last_waiter_left() -> None:
    waiters = RunEndWaiters()

    async def wait() -> None:
        with waiters.waiting("a"):
            pass

    asyncio.run(wait())
    waiters.on_message(end_of("a"))
    waiters.on_message(WorkerStats(run="a", stage="sum_tpv", shard=0, expected=1, processed=1, rows=1))
    assert not waiters._waiters


def test_a_waiter_whose_loop_has_closed_is_ignored() -> None:
    waiters = RunEndWaiters()
    waiting = waiters.waiting("a")

    async def leave_behind() -> None:
        waiting.__enter__()

    asyncio.run(leave_behind())
    assert waiters._waiters["a"], "the waiter is gone"
    waiters.on_message(end_of("a"))

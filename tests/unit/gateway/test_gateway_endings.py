"""Whoever waits for the end of a run is woken by the bus, from another thread."""

import asyncio
import threading

from kopitiam.contracts.messages import WorkerEnd, WorkerStats
from kopitiam.gateway.endings import Endings


def end_of(run: str) -> WorkerEnd:
    return WorkerEnd(run=run, stage="server_results", shard=0, processed=1, rows=5)


def on_another_thread(endings: Endings, run: str) -> None:
    thread = threading.Thread(target=endings.hear, args=(end_of(run),))
    thread.start()
    thread.join()


def test_all_who_wait_for_a_run_are_woken_and_nobody_else() -> None:
    endings = Endings()

    async def wait() -> list[bool]:
        with endings.awaited("a") as one, endings.awaited("a") as two, endings.awaited("b") as other:
            await asyncio.to_thread(on_another_thread, endings, "a")
            async with asyncio.timeout(20):
                await asyncio.gather(one.wait(), two.wait())
            return [one.is_set(), two.is_set(), other.is_set()]

    assert asyncio.run(wait()) == [True, True, False]


def test_nothing_is_kept_of_those_who_have_gone() -> None:
    endings = Endings()

    async def wait() -> None:
        with endings.awaited("a"):
            pass

    asyncio.run(wait())
    endings.hear(end_of("a"))
    endings.hear(WorkerStats(run="a", stage="sum_tpv", shard=0, expected=1, processed=1, rows=1))
    assert not endings._waiting


def test_a_loop_that_has_closed_is_no_trouble() -> None:
    endings = Endings()
    waiting = endings.awaited("a")

    async def leave_behind() -> None:
        waiting.__enter__()

    asyncio.run(leave_behind())
    assert endings._waiting["a"], "it did not leave as it should"
    endings.hear(end_of("a"))

"""The gate: suspect runs are processed alone, others side by side."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kopitiam.contracts.errors import Unavailable
from kopitiam.pipeline.attempts import Gate

SOON = 10


def test_many_pass_together_and_one_alone_waits_for_them_and_keeps_others_out() -> None:
    gate = Gate(threading.Event())
    inside: list[str] = []
    both_in, leave, alone_in, alone_leaves = (threading.Event() for _ in range(4))

    def pass_together(name: str) -> None:
        with gate.passing():
            inside.append(name)
            if len(inside) == 2:
                both_in.set()
            assert leave.wait(SOON)

    def pass_alone() -> None:
        with gate.passing(alone=True):
            inside.append("alone")
            alone_in.set()
            assert alone_leaves.wait(SOON)

    def pass_late() -> None:
        with gate.passing():
            inside.append("late")

    with ThreadPoolExecutor(4) as threads:
        passes = [threads.submit(pass_together, name) for name in ("one", "other")]
        assert both_in.wait(SOON)
        passes.append(threads.submit(pass_alone))
        while not gate._waiting:
            pass
        passes.append(threads.submit(pass_late))
        assert not alone_in.is_set()
        leave.set()
        assert alone_in.wait(SOON)
        assert inside in (["one", "other", "alone"], ["other", "one", "alone"])
        alone_leaves.set()
        for one in passes:
            one.result(SOON)
    assert inside[-2:] == ["alone", "late"]


def test_waiting_for_the_gate_ends_when_the_pipeline_stops() -> None:
    stopping = threading.Event()
    gate = Gate(stopping)
    with gate.passing(), ThreadPoolExecutor(1) as threads:

        def pass_alone() -> None:
            with gate.passing(alone=True):
                raise AssertionError("another one is inside")

        waiting = threads.submit(pass_alone)
        stopping.set()
        with pytest.raises(Unavailable):
            waiting.result(SOON)

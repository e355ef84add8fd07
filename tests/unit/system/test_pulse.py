"""Whether a part of the process answers, checked without waiting for it."""

import threading

from kopitiam.system.health import Pulse

BOUND = 20.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float, pulse: Pulse) -> bool:
        """Checks every two seconds, as heartbeats do. Returns whether the pulse is silent in the end."""
        for _ in range(int(seconds / 2)):
            self.now += 2
            is_silent = pulse.is_silent
        return is_silent


def test_a_pulse_without_answer_for_longer_than_its_bound_is_silent() -> None:
    clock = Clock()
    pulse = Pulse(lambda: None, BOUND, clock)
    assert not clock.pass_by(BOUND, pulse)
    assert clock.pass_by(4, pulse)
    pulse.answered()
    assert not clock.pass_by(BOUND, pulse)


def test_a_pulse_is_not_silent_because_the_checking_thread_was_suspended() -> None:
    clock = Clock()
    pulse = Pulse(lambda: None, BOUND, clock)
    clock.now += 1000
    assert not pulse.is_silent
    assert clock.pass_by(BOUND + 4, pulse)


def test_a_check_never_waits_for_an_answer() -> None:
    asked, never = threading.Event(), threading.Event()

    def block() -> None:
        asked.set()
        never.wait()

    clock = Clock()
    pulse = Pulse(block, BOUND, clock)
    with pulse.beating():
        assert asked.wait(10)
        assert not pulse.is_silent
        assert clock.pass_by(BOUND + 4, pulse)
    never.set()


def test_an_error_is_no_answer() -> None:
    asked = threading.Event()

    def refuse() -> None:
        asked.set()
        raise ConnectionRefusedError

    clock = Clock()
    pulse = Pulse(refuse, BOUND, clock)
    with pulse.beating():
        assert asked.wait(10)
        assert clock.pass_by(BOUND + 4, pulse)

"""Exceptions that signals raise are not lost in callbacks of the interpreter."""

import signal
import subprocess
import sys

import pytest

STRIKE = """
import signal, sys, time, weakref
from kopitiam.cli.process import raise_on_signals

class Thing:
    pass

signal.signal(signal.SIGINT, signal.default_int_handler)
raise_on_signals()
thing = Thing()
watch = weakref.ref(thing, lambda _: {deed})
try:
    del thing
    time.sleep({pause})
except BaseException as error:
    sys.exit(type(error).__name__)
print("went on")
"""


def run(deed: str, pause: float) -> tuple[str, str]:
    code = STRIKE.format(deed=deed, pause=pause)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    return ended.stdout.strip(), ended.stderr.strip()


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")]
)
def test_a_signal_within_a_callback_is_raised_again(number: signal.Signals, raised: str) -> None:
    assert run(f"signal.raise_signal({int(number)})", 60) == ("", raised)


def test_other_errors_within_a_callback_are_only_printed() -> None:
    went_on, told = run("1 / 0", 0.2)
    assert went_on == "went on"
    assert told.endswith("ZeroDivisionError: division by zero")

"""Signals as exceptions, so that everything is closed on the way out."""

import signal
import sys
from types import FrameType
from typing import NoReturn

_AGAIN_SECONDS = 0.05


class Terminated(BaseException):
    pass


def raise_on_signals() -> None:
    """SIGTERM raises too; and what a signal raises gets through.

    If it strikes within a callback of the interpreter, of a weak reference for one, Python only prints the
    exception and goes on: then it is raised again.
    """
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends at once
    raise Terminated


def _raise_again(ignored: "sys.UnraisableHookArgs") -> None:
    kind = ignored.exc_type
    if not issubclass(kind, (KeyboardInterrupt, Terminated)):
        sys.__unraisablehook__(ignored)
        return

    def strike(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise kind

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)  # not now: this is a callback still

"""SIGTERM as an exception, so that everything is closed on the way out."""

import signal
from types import FrameType


class Terminated(BaseException):
    pass


def raise_on_sigterm() -> None:
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends at once
    raise Terminated

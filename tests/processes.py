"""What has become of processes that a test has seen."""

import signal

import psutil


def is_alive(process: psutil.Process) -> bool:
    """A zombie is not, nor is another that got its number; who buries it is not our business."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def hear_interrupts() -> None:
    """In a child before its program begins: a suite that runs in the background ignores SIGINT, and its
    children would too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

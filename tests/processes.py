"""The state of processes that a test has started or seen."""

import signal

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Return whether the same process still runs: not a zombie, and not another process with its id."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def restore_sigint() -> None:
    """Restore SIGINT in a child process: children of a suite that runs in the background would ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

"""Keeps the lease of a run while its upload has nothing to send, for example on a slow disk."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kopitiam.contracts.errors import KopitiamError

BEAT_SECONDS = 15.0


@contextmanager
def heartbeat(beat: Callable[[], object], every_seconds: float = BEAT_SECONDS) -> Iterator[None]:
    """Beats from a thread of its own until the block is left."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(every_seconds):
            with suppress(KopitiamError):  # the upload itself will meet it, and say so
                beat()

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=1.0)

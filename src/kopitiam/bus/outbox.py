"""A bounded buffer of outgoing messages with its own thread, so that an unavailable bus blocks no caller."""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from kopitiam.contracts.errors import Unavailable

K = TypeVar("K")
V = TypeVar("V")
MOST = 1_000
_CLOSING_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Outbox(Generic[K, V]):
    """Holds one entry per key until it is sent; a new value for a waiting key is merged into it.

    Beyond `most` entries the oldest is dropped, and failed sends are not retried: only for messages whose
    loss reconciliation repairs.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[K, V], None],
        merge: Callable[[V, V], V] = lambda _, new: new,
        most: int = MOST,
    ) -> None:
        """`send` is called on the outbox's thread, which starts with the first entry."""
        self._name = name
        self._send = send
        self._merge = merge
        self._most = most
        self._entries: dict[K, V] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def put(self, key: K, value: V) -> None:
        """Never blocks. Ignored after `close`."""
        with self._changed:
            if self._is_closed:
                return
            before = self._entries.get(key)
            self._entries[key] = value if before is None else self._merge(before, value)
            if len(self._entries) > self._most:
                del self._entries[next(iter(self._entries))]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, seconds: float = _CLOSING_SECONDS) -> None:
        """Send waiting entries for at most `seconds`, then drop the rest."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
        with self._changed:
            self._entries.clear()

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            try:
                self._send(*entry)
            except Unavailable as error:
                _log.warning("%s: %s", self._name, error)
            except Exception:
                _log.exception("%s", self._name)

    def _next(self) -> tuple[K, V] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._is_closed)
            if not self._entries:
                return None
            key = next(iter(self._entries))
            return key, self._entries.pop(key)

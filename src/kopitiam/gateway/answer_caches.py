"""Caches of one gateway: drawn charts, and the answer files that were verified."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kopitiam.gateway.problems import Refusal
from kopitiam.landing.chunks import digest_of
from kopitiam.questions.definitions import Question
from kopitiam.registry.records import Published
from kopitiam.results.answers import Answers
from kopitiam.results.charts.drawing import Drawing, NoChart, draw
from kopitiam.results.charts.rendering import Renderer
from kopitiam.storage.port import Key, StoragePort

T = TypeVar("T")
MOST_KEPT_BYTES = 16 << 20
_BYTES_OF_A_MARK = 400  # about, beside its text
_MOST_VERIFIED = 10_000  # files kept
_State = tuple[int, int, int] | None


@dataclass
class ChartCache:
    """Charts, drawn at the first request; the least recently used are dropped when the cache is full.

    A set of answers never changes, so the folder of the answers and the question identify a chart.
    """

    renderer: Renderer = field(default_factory=Renderer)
    _kept: OrderedDict[tuple[Key, str, str], tuple[object, int]] = field(default_factory=OrderedDict)
    _size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drawing(self, folder: Key, answers: Answers, question: Question) -> Drawing | NoChart:
        """Return the drawing of an answer, which is not rendered yet."""

        def size(drawing: Drawing | NoChart) -> int:
            texts = drawing.texts if isinstance(drawing, Drawing) else ()
            return sum(_BYTES_OF_A_MARK + len(text) for text in texts)

        return self._once((folder, question.name, "drawing"), lambda: draw(answers, question), size)

    def picture(self, folder: Key, answers: Answers, question: Question) -> str:
        """Return the chart as SVG. Raises Refusal (404) with the reason for an answer without one."""
        drawing = self.drawing(folder, answers, question)
        if isinstance(drawing, NoChart):
            reason = drawing.reason or "Its columns suggest none."
            raise Refusal(404, "no_chart", f"question {question.name} has no chart. {reason}")
        return self._once((folder, question.name, "picture"), lambda: self.renderer.svg(drawing), len)

    def close(self) -> None:
        self.renderer.close()

    def _once(self, key: tuple[Key, str, str], make: Callable[[], T], size: Callable[[T], int]) -> T:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]  # type: ignore[return-value]  # the key determines the type
        value = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = value, size(value)
                self._size += size(value)
            while self._size > MOST_KEPT_BYTES and len(self._kept) > 1:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= dropped
        return value


@dataclass
class VerifiedFiles:
    """Files of answers that have the digests they were published with.

    A local file is read and verified once, and again when it has changed; a remote one only once.
    """

    storage: StoragePort
    _verified: dict[Key, _State] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verify(self, key: Key, published: Callable[[], Published | None]) -> None:
        """Raise Refusal (500) if the file differs from the published one. Other files are not checked."""
        state = self._state(key)
        with self._lock:
            if key in self._verified and self._verified[key] == state:
                return
        answers = published()
        is_published = answers is not None and key.parent.name == f"attempt={answers.attempt}"
        digest = answers.digests.get(key.name) if answers is not None and is_published else None
        if digest is None:
            return
        with self.storage.open(key) as file:
            if digest_of(file) != digest:
                message = f"{key.name} is damaged: its bytes differ from those that were published"
                raise Refusal(500, "damaged", f"{message}; submit the data again")
        with self._lock:
            if len(self._verified) >= _MOST_VERIFIED:
                self._verified.clear()
            self._verified[key] = state

    def _state(self, key: Key) -> _State:
        path = self.storage.path(key)
        if path is None:
            return None
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns, stat.st_ino

"""The charts of a gateway: drawn when they are first asked for, and kept while there is room.

A set of answers never changes, so a picture is known by the folder of its answers and the question.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kopitiam.gateway.problems import Refusal
from kopitiam.questions.definitions import Question
from kopitiam.results.answers import Answers
from kopitiam.results.charts.drawing import Drawing, Undrawn, draw
from kopitiam.results.charts.painter import Painter
from kopitiam.storage.port import Key

T = TypeVar("T")
MOST_KEPT_BYTES = 16 << 20
_BYTES_OF_A_MARK = 400  # about, beside its text


@dataclass
class Pictures:
    painter: Painter = field(default_factory=Painter)
    _kept: OrderedDict[tuple[Key, str, str], tuple[object, int]] = field(default_factory=OrderedDict)
    _size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drawing(self, folder: Key, answers: Answers, question: Question) -> Drawing | Undrawn:
        """What the chart of an answer shows, before it is painted."""

        def size(made: Drawing | Undrawn) -> int:
            texts = made.texts if isinstance(made, Drawing) else ()
            return sum(_BYTES_OF_A_MARK + len(text) for text in texts)

        return self._once((folder, question.name, "drawing"), lambda: draw(answers, question), size)

    def picture(self, folder: Key, answers: Answers, question: Question) -> str:
        """SVG. Raises Refusal 404 for an answer without a chart, with the reason."""
        drawing = self.drawing(folder, answers, question)
        if isinstance(drawing, Undrawn):
            reason = drawing.reason or "Its columns suggest none."
            raise Refusal(404, "no_chart", f"question {question.name} has no chart. {reason}")
        return self._once((folder, question.name, "picture"), lambda: self.painter.picture(drawing), len)

    def close(self) -> None:
        self.painter.close()

    def _once(self, key: tuple[Key, str, str], make: Callable[[], T], size: Callable[[T], int]) -> T:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]  # type: ignore[return-value]  # it was made for this key
        made = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made, size(made)
                self._size += size(made)
            while self._size > MOST_KEPT_BYTES and len(self._kept) > 1:
                _, (_, gone) = self._kept.popitem(last=False)
                self._size -= gone
        return made

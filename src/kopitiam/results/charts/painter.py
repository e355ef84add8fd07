"""The painter: drawings in, pictures out, through a process of its own."""

import base64
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from kopitiam.contracts.errors import ServiceError
from kopitiam.results.charts.drawing import Drawing
from kopitiam.system.worker_processes import Deadly, Message, WorkerProcesses

COMMAND = (sys.executable, "-m", "kopitiam.results.charts.worker")
ImageForm = Literal["png", "pdf"]


class Unpaintable(ServiceError):
    """The engine failed on a drawing; the message says how."""


class Painter:
    """One worker process for all charts of a gateway; it starts with the first chart."""

    def __init__(self) -> None:
        self._workers = WorkerProcesses(lambda: COMMAND, 1)

    def picture(self, drawing: Drawing) -> str:
        """SVG for a page. The same drawing gives the same bytes on every machine."""
        order = {
            "specification": drawing.specification,
            "texts": drawing.texts,
            "description": drawing.description,
        }
        return str(self._ask(order)["picture"])

    def image(self, picture: str, form: ImageForm) -> bytes:
        """In the colours of the day. A letter that the engine's own font lacks is of the machine's fonts."""
        return base64.b64decode(self._ask({"picture": picture, "form": form})["bytes"])

    @property
    def pids(self) -> set[int]:
        return self._workers.pids

    def close(self) -> None:
        self._workers.close()

    def _ask(self, order: Message) -> Message:
        try:
            answer = self._workers.ask(order)
        except Deadly:
            raise Unpaintable("the chart takes more memory or time than a chart may") from None
        if "flaw" in answer:
            raise Unpaintable(f"the chart cannot be drawn: {answer['flaw']}")
        return answer


@contextmanager
def painting() -> Iterator[Painter]:
    """A painter for the block only."""
    painter = Painter()
    try:
        yield painter
    finally:
        painter.close()

"""Where the time of a batch or of a final step goes; told in the log, for those who ask."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator


class Stopwatch:
    """Laps may run side by side and come more than once: their seconds add up."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def lap(self, step: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[step] += time.perf_counter() - begun

    @property
    def seconds(self) -> dict[str, float]:
        return {step: round(seconds, 4) for step, seconds in self._seconds.items()}

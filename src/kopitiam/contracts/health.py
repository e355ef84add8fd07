"""Whether the work of this process makes progress; `/readyz` and heartbeats tell it. No I/O."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_FINAL_STEP_SECONDS = 30.0  # a final step that failed is tried again every ten; then its run may be over


@dataclass
class Health:
    """Written by the work, read by a gateway in the same process or by the heartbeats of a fleet's pipeline.
    `trouble` and `reason` are for clients: they name no path of the server."""

    trouble: str | None = None  # of the stream and of Spark's process
    steps: int = 0  # batches committed, answers published, runs failed for good: the work gets on
    steady: Callable[[], float] = field(default=time.monotonic, repr=False)
    _final: tuple[float, str] | None = None  # when a final step last failed, and why

    @property
    def reason(self) -> str | None:
        """Why the work makes no progress; None if it does. The stream may go on while final steps cannot."""
        if self.trouble is not None:
            return self.trouble
        failed = self._final
        if failed is None or self.steady() - failed[0] > _FINAL_STEP_SECONDS:
            return None
        return failed[1]

    def got_on(self) -> None:
        self.steps += 1
        self.trouble = None

    def on_final_step_failed(self, reason: str) -> None:
        self._final = (self.steady(), reason)

    def on_answered(self) -> None:
        self._final = None

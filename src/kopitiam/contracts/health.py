"""Whether the work of this process makes progress; `/readyz` reads it. No I/O."""

from dataclasses import dataclass


@dataclass
class Health:
    """Written by the work, read by a gateway in the same process. `trouble` is for clients: it names no path
    of the server."""

    trouble: str | None = None
    steps: int = 0  # batches committed, answers published, runs failed for good: the work gets on

    def got_on(self) -> None:
        self.steps += 1
        self.trouble = None

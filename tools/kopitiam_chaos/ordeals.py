"""What was done to the nodes of a fleet, and what became of them. No I/O."""

from dataclasses import dataclass, field
from typing import Any

from kopitiam_chaos.plan import Deed


@dataclass
class Ordeal:
    """What was done to a node, and what became of it; seconds are counted from the blow."""

    number: int
    name: str
    deed: Deed
    at_seconds: float  # since the storm began
    was_leader: bool = False
    hold_seconds: float = 0.0
    noticed_seconds: float | None = None  # None: not at all, as one that wakes in time
    revived_seconds: float | None = None
    is_replaced: bool = False
    runs_under_way: dict[str, str] = field(default_factory=dict)  # run and state at the moment of the blow

    def to_dict(self) -> dict[str, Any]:
        return {
            name: round(value, 3) if isinstance(value, float) else value for name, value in vars(self).items()
        }

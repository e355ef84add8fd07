"""The nodes of a fleet as monitors and gateways show them. No I/O."""

from dataclasses import dataclass
from typing import Literal

from kopitiam.contracts.messages import NodeKind

NodeState = Literal["starting", "alive", "dead", "stopped"]


@dataclass(frozen=True)
class NodeRecord:
    """A node in the life that its epoch names; `since` is when it came into its state."""

    name: str
    kind: NodeKind
    pid: int | None
    url: str | None
    state: NodeState
    since: float
    epoch: int
    alarm: str | None = None
    leader: bool = False

"""The cases of the fault clocks: which node's clock is wrong, and by how much. No I/O."""

import itertools
import random
from dataclasses import dataclass

LEADER = "monitor-3"
NODES = (LEADER, "gateway-1", "pipeline-1")
OFFSETS = (5, -5, 30, -30, 61, -61, 3600, -3600)
JUMPS = (61, -61, 3600, -3600)


@dataclass(frozen=True)
class ClockCase:
    """How the clock of a node is wrong: by one offset since its start, or by several while it runs."""

    node: str
    offsets: tuple[int, ...]

    @property
    def is_jumping(self) -> bool:
        return len(self.offsets) > 1

    def __str__(self) -> str:
        offsets = ", ".join(f"{offset:+d}" for offset in self.offsets)
        return f"{self.node} {'jumping to' if self.is_jumping else 'by'} {offsets} s"


ALWAYS = ClockCase(LEADER, (61,))  # this clock once ended a run whose client was sending


def all_cases() -> list[ClockCase]:
    """Every node with every offset, and every node with a clock that jumps."""
    constant = [ClockCase(node, (offset,)) for node, offset in itertools.product(NODES, OFFSETS)]
    return constant + [ClockCase(node, JUMPS) for node in NODES]


def sampled_cases(seed: int) -> list[ClockCase]:
    """The leader ahead by 61 s, another constant offset, and a clock that jumps."""
    chance = random.Random(seed)
    constant = [case for case in all_cases() if case != ALWAYS and not case.is_jumping]
    return [ALWAYS, chance.choice(constant), ClockCase(chance.choice(NODES), JUMPS)]

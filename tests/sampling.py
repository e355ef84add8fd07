"""Slow matrices: a sample drawn by a seed in `make test`, everything in `make test-full`."""

import os
import random
from collections.abc import Iterable
from typing import TypeVar

IS_FULL = bool(os.environ.get("KOPI_TEST_FULL"))
SEED = int(os.environ.get("KOPI_TEST_SEED", "1"))
T = TypeVar("T")


def sampled(cases: Iterable[T], count: int) -> list[T]:
    """`count` of the cases, in their order; all of them in the full suite."""
    every = list(cases)
    if IS_FULL or count >= len(every):
        return every
    chosen = sorted(random.Random(SEED).sample(range(len(every)), count))
    return [every[place] for place in chosen]

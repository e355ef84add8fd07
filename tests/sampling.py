"""What `make test` samples and `make test-full` runs in full: slow matrices, and tests marked `long`.

The seed is the commit, so that every commit draws another sample and draws it again when its tests are
repeated. `KOPI_TEST_SEED` sets another seed.
"""

import os
import random
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

IS_FULL = bool(os.environ.get("KOPI_TEST_FULL"))
_ALWAYS_RUN = 5  # so that a few tests named on the command line all run
T = TypeVar("T")


@cache
def seed() -> str:
    if given := os.environ.get("KOPI_TEST_SEED"):
        return given
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False)
    return commit.stdout.strip() or "no commit"


def sampled(cases: Iterable[T], count: int, seed: str = "1") -> list[T]:
    """`count` of the cases, in their order; all of them in the full suite."""
    every = list(cases)
    if IS_FULL or count >= len(every):
        return every
    chosen = sorted(random.Random(seed).sample(range(len(every)), count))
    return [every[place] for place in chosen]


def unsampled(items: list[pytest.Item]) -> list[pytest.Item]:
    """Three quarters of the long tests: those that this run leaves out."""
    long = [item for item in items if item.get_closest_marker("long")]
    kept = {item.nodeid for item in sampled(long, max(_ALWAYS_RUN, len(long) // 4), seed())}
    return [item for item in long if item.nodeid not in kept]

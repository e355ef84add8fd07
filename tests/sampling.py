"""What `make test` samples and `make test-full` runs in full: slow matrices, and tests marked `long`, `rare`
or `full`.

The seed is the content of the commit, so that every change draws another sample and draws it again when its
tests are repeated. It is the seed of hypothesis too. `KOPI_TEST_SEED` sets another seed.
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
LONG_SHARE = 36  # make test runs one long test of this many
_ALWAYS_RUN = 5  # so that a few tests named on the command line all run
T = TypeVar("T")


@cache
def seed() -> str:
    if given := os.environ.get("KOPI_TEST_SEED"):
        return given
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD^{tree}"]
    tree = subprocess.run(command, capture_output=True, text=True, check=False)
    return tree.stdout.strip() if tree.returncode == 0 else "no commit"


def sampled(cases: Iterable[T], count: int, seed: str = "1") -> list[T]:
    """`count` of the cases, in their order; all of them in the full suite."""
    every = list(cases)
    if IS_FULL or count >= len(every):
        return every
    chosen = sorted(random.Random(seed).sample(range(len(every)), count))
    return [every[place] for place in chosen]


def unsampled(items: list[pytest.Item]) -> list[pytest.Item]:
    """Most of the long tests, all but one of the rare ones, and those for the full suite alone: what this run
    leaves out."""
    long = [item for item in items if item.get_closest_marker("long")]
    rare = [item for item in items if item.get_closest_marker("rare")]
    full = [item for item in items if item.get_closest_marker("full")]
    kept = [
        *sampled(long, max(_ALWAYS_RUN, len(long) // LONG_SHARE), seed()),
        *sampled(rare, len(rare) if len(rare) <= _ALWAYS_RUN else 1, seed()),
        *(full if IS_FULL or len(items) <= _ALWAYS_RUN else ()),
    ]
    names = {item.nodeid for item in kept}
    return [item for item in (*long, *rare, *full) if item.nodeid not in names]

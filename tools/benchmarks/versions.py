"""Compares the CPU of the catalog's questions in this tree and in an older one, in one run.

    python -m tools.benchmarks.versions REVISION [--scale 0.3] [--rounds 5]

Checks the older revision out into a temporary worktree and starts one service of each tree with the same
environment. After warm-ups the same data is submitted to both in turns. Prints, for each round, the CPU
seconds of the service's processes, of Java alone, and of the client, then the ratio of medians, new to old.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tools.benchmarks.measure import children_cpu_seconds, cpu_by_part
from tools.benchmarks.service import Service, running_version
from tools.benchmarks.suite import CACHE, generated_data

CHECKOUT = Path(__file__).parents[2]
WARM_UPS = 8  # with three, Java's compiler was still at work for three rounds


@dataclass(frozen=True)
class CpuSeconds:
    """CPU seconds that one submit took."""

    service: float
    java: float
    client: float


@dataclass(frozen=True)
class Version:
    name: str
    source: Path
    service: Service

    def submit(self, data: Path) -> CpuSeconds:
        before, client = cpu_by_part(self.service.process), children_cpu_seconds()
        with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as out:
            command = [sys.executable, "-m", "kopitiam", "submit", str(data)]
            subprocess.run(
                [*command, "--server", self.service.url, "--out", out],
                env=environment(self.source),
                check=True,
                capture_output=True,
            )
        after = cpu_by_part(self.service.process)
        spent = {part: after[part] - before[part] for part in after}
        return CpuSeconds(sum(spent.values()), spent["Java"], children_cpu_seconds() - client)


def environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source)}


@contextlib.contextmanager
def worktree(revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(CHECKOUT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), revision], check=True, capture_output=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def compare_versions(revision: str, scale: float, rounds: int) -> None:
    data = generated_data(scale, 7, CACHE, print)
    with contextlib.ExitStack() as stack:
        sources = {"old": stack.enter_context(worktree(revision)) / "src", "new": CHECKOUT / "src"}
        versions = [
            Version(name, source, stack.enter_context(running_version(environment(source))))
            for name, source in sources.items()
        ]
        for _ in range(WARM_UPS):
            for version in versions:
                version.submit(data)
        rows: dict[str, list[CpuSeconds]] = {name: [] for name in sources}
        for number in range(rounds):
            for version in versions if number % 2 else reversed(versions):
                rows[version.name].append(spent := version.submit(data))
                print(f"round {number + 1}, {version.name}: {spent}", flush=True)
    for part in ("service", "java", "client"):
        old, new = (median(getattr(spent, part) for spent in rows[name]) for name in ("old", "new"))
        print(f"{part}: {old:.2f} s before, {new:.2f} s now, ratio {new / old:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="the older tree, such as a commit or a tag")
    parser.add_argument("--scale", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    compare_versions(arguments.revision, arguments.scale, arguments.rounds)

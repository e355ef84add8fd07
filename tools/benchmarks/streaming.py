"""Measures a warm service: END to answers, the overhead of a batch, and where the time of a submit goes.

Spark's figures of a batch are in the log line of the next batch, unless Spark was idle in between. So every
figure comes with the number of batches it is based on.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tools.benchmarks.service import ClientRun, Service, run_client

MILLISECONDS = 1000


@dataclass(frozen=True)
class ServiceLog:
    """Batches and final steps, as a service logged them."""

    batches: tuple[dict[str, Any], ...]
    answered: dict[str, dict[str, float]]  # seconds by step, by run

    @property
    def numbers(self) -> set[int]:
        return {batch["batch"] for batch in self.batches}

    def overheads(self, numbers: Collection[int]) -> list[float]:
        """Spark's overhead of these batches in milliseconds, as far as the log has it."""
        before = [batch["spark_before"] for batch in self.batches if batch["spark_before"]]
        return [
            spark["milliseconds"]["triggerExecution"] - spark["milliseconds"]["addBatch"]
            for spark in before
            if spark["batch"] in numbers
            and "addBatch" in spark["milliseconds"]  # missing from an idle trigger
        ]


def read_log(text: str) -> ServiceLog:
    """Skips lines of Spark and others."""
    lines = [line for line in map(_json, text.splitlines()) if "seconds" in line]
    return ServiceLog(
        batches=tuple(line for line in lines if line["event"].endswith(" committed")),
        answered={line["run"]: line["seconds"] for line in lines if line["event"].endswith(" answered")},
    )


def _json(line: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return {}
    return fields


def measure_streaming(
    service: Service, data: Path, tenth: Path, rounds: int, announce: Callable[[str], None]
) -> dict[str, Any]:
    """Submits the data and a tenth of it in turns, then the data once more for the breakdown."""
    begun = service.log_bytes
    whole: list[ClientRun] = []
    small: list[ClientRun] = []
    for number in range(1, rounds + 1):
        for folder, runs, size in ((data, whole, "all of the data"), (tenth, small, "a tenth of it")):
            announce(f"round {number} of {rounds}: END to answers, {size}")
            runs.append(_submit(service, folder))
    announce("where the time of one submit goes")
    before = service.log_bytes
    run = _submit(service, data)
    own = read_log(service.log_after(before))
    _submit(service, tenth)  # its log lines have Spark's figures of the batch before it
    return {
        "end_to_answers": end_to_answers(whole, small),
        "batches": batch_costs(read_log(service.log_after(begun))),
        "breakdown": breakdown(run, own.numbers, read_log(service.log_after(before))),
    }


def _submit(service: Service, data: Path) -> ClientRun:
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-out-") as scratch:
        return run_client(data, service, Path(scratch) / "answers")


def end_to_answers(whole: list[ClientRun], tenth: list[ClientRun]) -> dict[str, Any]:
    """Seconds from the last END to the answers, and their share of the whole submit."""
    seconds, tenth_seconds = ([run.seconds["END to answers"] for run in runs] for runs in (whole, tenth))
    return {
        "seconds": seconds,
        "median_seconds": median(seconds),
        "share": median(run.seconds["END to answers"] / run.wall_seconds for run in whole),
        "tenth_seconds": tenth_seconds,
        "tenth_median_seconds": median(tenth_seconds),
        "ratio": median(seconds) / median(tenth_seconds),
    }


def batch_costs(log: ServiceLog) -> dict[str, Any]:
    """Fixed costs of a batch: Spark's overhead and the registry commit."""
    commits = [MILLISECONDS * batch["seconds"]["commit"] for batch in log.batches]
    return {
        "count": len(log.batches),
        "overhead_milliseconds": _spread(log.overheads(log.numbers)),
        "commit_milliseconds": _spread(commits),
    }


def _spread(values: list[float]) -> dict[str, float | None]:
    middle = median(values) if values else None
    return {"count": len(values), "median": middle, "max": max(values, default=None)}


def breakdown(run: ClientRun, numbers: Collection[int], log: ServiceLog) -> dict[str, Any]:
    """Thread-seconds by step, of the client, of the batches with these numbers, and of the final step."""
    batches: Counter[str] = Counter()
    for batch in log.batches:
        if batch["batch"] in numbers:
            batches.update(batch["seconds"])
    overheads = log.overheads(numbers)
    return {
        "wall_seconds": run.wall_seconds,
        "cpu_seconds": run.cpu_seconds,
        "parts": {part: run.seconds[part] for part in ("upload", "END to answers", "download")},
        "batches": len(numbers),
        "batches_with_overhead": len(overheads),
        "thread_seconds": {
            "client to durable": run.shares,
            "batches": {**batches, "Spark's overhead": sum(overheads) / MILLISECONDS},
            "final step": log.answered.get(run.run, {}),
            "answers": {"download": run.seconds["download"]},
        },
    }

"""A data set that grows: what a further month costs, against sending all months anew, and asking again."""

import filecmp
import re
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tools.benchmarks.measure import CommandError, cpu_by_part, measure
from tools.benchmarks.service import KOPI, Service

WARM_UPS = 1  # of each command; the service itself is warm already
ANEW, MONTH, ASK = "all months anew", "the last month", "asked again"
_SENT = re.compile(r"^kopitiam_chunk_bytes_total\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """Of one command: seconds, CPU of client and service together, and bytes that were sent."""

    seconds: float
    cpu_seconds: float
    bytes: int


def measure_months(
    service: Service, data: Path, rounds: int, announce: Callable[[str], None]
) -> dict[str, Any]:
    """Sends all months to a new data set, and all but the last to another; there the last, then asks again.

    Returns medians over the rounds, and their ratios to all months anew. Raises CommandError if the answers
    of the three differ by a byte.
    """
    costs: dict[str, list[Cost]] = {ANEW: [], MONTH: [], ASK: []}
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as folder:
        scratch = Path(folder)
        earlier = without_last_month(data, scratch / "earlier")
        for number in range(-WARM_UPS, rounds):
            announce(f"months: {'warming up' if number < 0 else f'round {number + 1} of {rounds}'}")
            measured = _round(service, data, earlier, scratch)
            if number >= 0:
                for name, cost in measured.items():
                    costs[name].append(cost)
    return summarize(costs)


def summarize(costs: dict[str, list[Cost]]) -> dict[str, Any]:
    middles = {
        name: {figure: median(asdict(cost)[figure] for cost in of_name) for figure in Cost.__annotations__}
        for name, of_name in costs.items()
    }
    anew = middles[ANEW]
    return {
        "steps": [
            {
                "name": name,
                **middle,
                "cpu_share": middle["cpu_seconds"] / anew["cpu_seconds"],
                "byte_share": middle["bytes"] / anew["bytes"] if anew["bytes"] else None,
            }
            for name, middle in middles.items()
        ]
    }


def without_last_month(data: Path, target: Path) -> Path:
    """A folder of links to the files of all months but the last."""
    months = sorted({month[1] for file in data.rglob("*.csv") if (month := _month(file))})
    for file in data.rglob("*.csv"):
        month = _month(file)
        if month is None or month[1] != months[-1]:
            link = target / file.relative_to(data)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.resolve())
    return target


def _month(file: Path) -> re.Match[str] | None:
    return re.search(r"_(\d{6})\.csv$", file.name)


def _round(service: Service, data: Path, earlier: Path, scratch: Path) -> dict[str, Cost]:
    outs = {name: scratch / name.replace(" ", "-") for name in (ANEW, MONTH, ASK)}

    def run(*words: str, out: Path | None = None) -> Cost:
        command = [str(KOPI), *words, "--server", service.url]
        return _cost(service, [*command, "--out", str(out)] if out else command)

    costs = {ANEW: run("submit", str(data), "--data", "anew", out=outs[ANEW])}
    run("submit", str(earlier), "--data", "grown", out=scratch / "unused")
    costs[MONTH] = run("submit", str(data), "--data", "grown", out=outs[MONTH])
    costs[ASK] = run("ask", "grown", out=outs[ASK])
    for name in ("anew", "grown"):
        run("data", "drop", name, "--yes")
    for file in outs[ANEW].glob("results_*.csv"):
        for out in outs.values():
            if not filecmp.cmp(file, out / file.name, shallow=False):
                raise CommandError(f"{file.name} differs in {out.name}")
    return costs


def _cost(service: Service, command: list[str]) -> Cost:
    before, bytes_before = sum(cpu_by_part(service.process).values()), _bytes_sent(service)
    measured = measure(command)
    spent = sum(cpu_by_part(service.process).values()) - before
    return Cost(measured.seconds, measured.cpu_seconds + spent, _bytes_sent(service) - bytes_before)


def _bytes_sent(service: Service) -> int:
    with urllib.request.urlopen(f"{service.url}/metrics") as answer:
        return round(sum(map(float, _SENT.findall(answer.read().decode()))))

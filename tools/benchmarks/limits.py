"""The limits of the benchmark: figures of one run that must not be exceeded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tools.benchmarks.months import MONTH

FULL_SCALE = 1.0
GIGABYTE = 1_000_000_000


@dataclass(frozen=True)
class Limit:
    """A figure and its limit. One that does not count is shown for information only."""

    name: str
    value: float | None  # None: the contender failed, so there is no figure
    limit: float
    counts: bool = True
    is_least: bool = False  # the figure must reach the limit, not stay below it

    @property
    def is_met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.limit if self.is_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "limit": self.limit,
            "counts": self.counts,
            "is_least": self.is_least,
            "is_met": self.is_met,
        }


def limits_of(result: dict[str, Any]) -> list[Limit]:
    """One limit for each figure that was measured; most count at full size only."""
    counts = result["scale"] >= FULL_SCALE
    return [
        *_of_comparison(result["comparison"], counts),
        *_of_sample(result["sample"]),
        *_of_wild(result, counts),
        *_of_streaming(result["streaming"], result["scale"], counts),
        *_of_clients(result["clients"], counts),
        *_of_months(result["months"], counts),
        *_of_ingest(result["ingest"], counts),
    ]


def _of_comparison(comparison: dict[str, Any], counts: bool) -> Iterator[Limit]:
    standings = {standing["key"]: standing for standing in comparison["standings"]}
    if warm := standings.get("service"):
        yield Limit(f"{warm['name']}, × DuckDB", warm["ratio"], 2.2, counts)
        yield Limit(f"{warm['name']}, CPU seconds", warm["median_cpu_seconds"], 32, counts)
    if cold := standings.get("kopi"):
        yield Limit(f"{cold['name']}, cold, × DuckDB", cold["ratio"], 3.5, counts)
        yield Limit(f"{cold['name']}, peak memory, GB", cold["peak_bytes"] / GIGABYTE, 3, counts)


def _of_sample(sample: dict[str, Any] | None) -> Iterator[Limit]:
    for standing in sample["standings"] if sample else ():
        if standing["key"] == "kopi":
            yield Limit("kopi analyze on the sample, × bare Spark", standing["ratio"], 0.9)


def _of_wild(result: dict[str, Any], counts: bool) -> Iterator[Limit]:
    if not result["wild"]:
        return
    real = {standing["key"]: standing["median_seconds"] for standing in result["comparison"]["standings"]}
    for standing in result["wild"]["standings"]:
        seconds, of_real = standing["median_seconds"], real.get(standing["key"])
        if of_real:
            ratio = seconds / of_real if seconds else None
            yield Limit(f"{standing['name']}, wild data, × real data", ratio, 1.2, counts)


def _of_streaming(streaming: dict[str, Any] | None, scale: float, counts: bool) -> Iterator[Limit]:
    if streaming:
        waits = streaming["end_to_answers"]
        yield Limit("END to answers, share of the whole", waits["share"], 0.10, counts)
        name = f"END to answers, scale {scale:g} against {scale / 10:g}"
        yield Limit(name, waits["ratio"], 1.5, counts)


def _of_clients(clients: dict[str, Any] | None, counts: bool) -> Iterator[Limit]:
    for crowd in clients["crowds"] if clients else ():
        if crowd["clients"] == 4:
            yield Limit("4 clients, rows/s against one", crowd["ratio"], 1.5, counts, is_least=True)


def _of_months(months: dict[str, Any] | None, counts: bool) -> Iterator[Limit]:
    for step in months["steps"] if months else ():
        if step["name"] == MONTH:
            yield Limit("the last of 24 months, share of the CPU of all", step["cpu_share"], 0.15, counts)
            yield Limit("the last of 24 months, share of the bytes of all", step["byte_share"], 0.08)


def _of_ingest(ingest: dict[str, Any] | None, counts: bool) -> Iterator[Limit]:
    if ingest:
        yield Limit("client to durable, × pyarrow alone", ingest["ratio"], 1.6, counts)
        for part in ("client", "gateway"):
            memory = ingest[f"{part}_peak_bytes"] / GIGABYTE
            yield Limit(f"peak memory of the {part}, GB", memory, 0.5, counts)

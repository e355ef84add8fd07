"""Figures for Prometheus, one set for each gateway."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.chunks = Counter(
            "kopitiam_chunks", "Chunks by table and outcome", ["table", "outcome"], registry=self._registry
        )
        self.bytes = Counter(
            "kopitiam_chunk_bytes", "Bytes of stored bodies", ["table"], registry=self._registry
        )
        self.rows = Counter("kopitiam_rows", "Rows of stored chunks", ["table"], registry=self._registry)
        self.rejected = Counter(
            "kopitiam_rejected_rows", "Rows set aside", ["table"], registry=self._registry
        )
        self.seconds = Histogram(
            "kopitiam_chunk_seconds",
            "Time of each step of a chunk",
            ["step"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.open_runs = Gauge("kopitiam_open_runs", "Runs that take chunks", registry=self._registry)
        self.bodies = Gauge("kopitiam_bodies_under_way", "Chunks being received", registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)

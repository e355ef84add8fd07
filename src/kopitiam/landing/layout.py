"""Where everything of a run lies below the home folder. Names come from closed sets, never from a client."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    path: Path

    @property
    def landing(self) -> Path:
        return self.path / "landing"

    @property
    def incoming(self) -> Path:
        """Bodies that nobody has accepted yet; on the same file system as the landing."""
        return self.path / "incoming"

    def chunk(self, run: str, table: str, shard: int, number: int) -> Path:
        return self.table_folder(run, table, shard) / f"chunk-{number:05d}.parquet"

    def table_folder(self, run: str, table: str, shard: int) -> Path:
        return self.landing / f"table={table}" / f"shard={shard}" / f"run={run}"

    @property
    def partials(self) -> Path:
        return self.path / "partials"

    def partials_of(self, pipeline: str) -> Path:
        """A folder for each batch and each merge, written by one pipeline only."""
        return self.partials / f"pipeline={pipeline}"

    def partial_folders(self, run: str) -> list[Path]:
        return list(self.partials.glob(f"pipeline=*/batch=*/run={run}"))

    def checkpoint(self, pipeline: str, shards: Sequence[int]) -> Path:
        """Another set of shards is another stream."""
        return self.path / "checkpoints" / f"{pipeline}-{'-'.join(map(str, shards))}"

    def rejected(self, run: str) -> Path:
        """One CSV file for each chunk or client that set rows aside."""
        return self.path / "rejected" / f"run={run}"

    def results(self, run: str) -> Path:
        return self.path / "results" / f"run={run}"

    def attempt(self, run: str, attempt: str) -> Path:
        return self.results(run) / f"attempt={attempt}"

    def provisional(self, run: str, attempt: str) -> Path:
        return self.results(run) / f"provisional={attempt}"

    def landing_folders(self, run: str) -> list[Path]:
        return list(self.landing.glob(f"table=*/shard=*/run={run}"))

    def runs_on_disk(self) -> set[str]:
        patterns = (
            "landing/table=*/shard=*/run=*",
            "partials/pipeline=*/batch=*/run=*",
            "rejected/run=*",
            "results/run=*",
        )
        return {path.name.removeprefix("run=") for pattern in patterns for path in self.path.glob(pattern)}

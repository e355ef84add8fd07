"""Paths of all files of runs and data sets, in storage and home, and the identity that ties these to a
registry.

Names come from closed sets, never from a client. Chunks, partials and rejected rows of a data file lie in the
same places as those of a run, under its id.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Generic, TypeVar

P = TypeVar("P", bound=PurePath)
_MOST_SHARDS_NAMED = 128  # characters, of the 255 that a name may have


@dataclass(frozen=True)
class Layout(Generic[P]):
    """Paths below `path` that gateways and pipelines share."""

    path: P

    @property
    def landing(self) -> P:
        return self.path / "landing"

    def chunk(self, run: str, table: str, shard: int, number: int) -> P:
        return self.table_folder(run, table, shard) / f"chunk-{number:05d}.parquet"

    def table_folder(self, run: str, table: str, shard: int) -> P:
        return self.landing / f"table={table}" / f"shard={shard}" / f"run={run}"

    @property
    def partials(self) -> P:
        return self.path / "partials"

    def partials_of(self, pipeline: str) -> P:
        """Folder with one folder for each batch and each merge; only this pipeline writes to it."""
        return self.partials / f"pipeline={pipeline}"

    def rejected(self, run: str) -> P:
        """Folder with one CSV file for each chunk or client that rejected rows."""
        return self.path / "rejected" / f"run={run}"

    def results(self, run: str) -> P:
        return self.path / "results" / f"run={run}"

    def attempt(self, run: str, attempt: str) -> P:
        return self.results(run) / f"attempt={attempt}"

    def provisional(self, run: str, attempt: str) -> P:
        return self.results(run) / f"provisional={attempt}"

    @property
    def queries(self) -> P:
        return self.path / "queries"

    def queries_of(self, data_set: str) -> P:
        """Folder with one folder for each SQL query over a data set."""
        return self.queries / f"data={data_set}"

    def query(self, data_set: str, query: str) -> P:
        return self.queries_of(data_set) / f"query={query}"

    def sorting(self, run: str, attempt: str) -> P:
        """Folder for rows that an attempt sorts before it writes an answer."""
        return self.results(run) / f"sorting={attempt}"


KEYS = Layout(PurePosixPath())  # relative to the root of the storage


def owner_of(path: PurePath) -> str:
    """Return the run or data file in whose folder a chunk or a partial lies."""
    return path.parent.name.removeprefix("run=")


class Home(Layout[Path]):
    """Adds the paths that stay on this machine."""

    @property
    def incoming(self) -> Path:
        """Folder for bodies that are not accepted yet; on the same file system as a landing below home."""
        return self.path / "incoming"

    def checkpoint(self, pipeline: str, shards: Sequence[int]) -> Path:
        """Folder of a stream's checkpoint; another set of shards is another stream."""
        return self.path / "checkpoints" / f"{pipeline}-{_name_of(shards)}"


def _name_of(shards: Sequence[int]) -> str:
    every = "-".join(map(str, shards))
    if len(every) <= _MOST_SHARDS_NAMED:
        return every
    return f"{shards[0]}-to-{shards[-1]}-{hashlib.sha256(every.encode()).hexdigest()[:16]}"


MARK_FILE = "registry.json"  # at the root of home and of storage


@dataclass(frozen=True)
class Identity:
    """The id and mark of a registry. Home and storage carry a copy, which must match their registry."""

    id: str
    mark: int  # grows at every start of a gateway or pipeline, and while gateways run
    is_used: bool = True  # False: the registry is new, without any run or node

"""Data sets: files that were sent once, and versions, which are lists of them. No I/O.

A version never changes. A new one is the newest with some files added and others replaced. A file is known by
its table and name; its id names its chunks and partials in storage, as the id of a run does for those of a
run.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

DATA_SET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
MOST_FILES_A_CALL = 100  # that a client names in one call: their description takes less than 64 KiB
_SHARD_DIGITS = 6  # of the id: enough to spread files evenly


def new_file_id() -> str:
    """Return an id that no run and no other file has: both name folders in the same places."""
    return secrets.token_hex(12)


def shard_of_file(file: str, number: int, shards: int) -> int:
    """Return the shard of a chunk of a file. Files of one chunk each are spread over all shards too."""
    return (int(file[:_SHARD_DIGITS], 16) + number) % shards


@dataclass(frozen=True)
class SourceFile:
    """A file as a client describes it."""

    table: str
    name: str  # of the plain CSV file: transactions_202401.csv
    digest: str  # hexadecimal SHA-256 of its text
    bytes: int  # of its text
    columns: tuple[str, ...]  # that the client sends, in the order of the layout

    @property
    def key(self) -> tuple[str, str]:
        """What a file of another version replaces."""
        return self.table, self.name

    @property
    def path(self) -> str:
        """The file as messages name it."""
        return f"{self.table}/{self.name}"


@dataclass(frozen=True)
class DataFile(SourceFile):
    """A file of a data set. Its figures are final when it has had its END."""

    file: str  # its id
    run: str  # that sent it
    chunks: int = 0
    rows: int = 0
    rejected: int = 0
    is_ended: bool = False


@dataclass(frozen=True)
class Changes:
    """How a version differs from the one before it: numbers of files and rows."""

    added: int = 0
    replaced: int = 0
    kept: int = 0
    rows_added: int = 0
    rows_removed: int = 0

    @property
    def text(self) -> str:
        files = f"{_count(self.added, 'file')} added, {self.replaced:,} replaced, {self.kept:,} kept"
        return f"{files}; {_count(self.rows_added, 'row')} added, {self.rows_removed:,} taken away"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def changes_between(before: Iterable[DataFile], after: Iterable[DataFile]) -> Changes:
    """Compare the files of two versions. Files are added and replaced, never only removed."""
    old = {file.key: file for file in before}
    new = {file.key: file for file in after}
    changed = [file for key, file in new.items() if key not in old or old[key].file != file.file]
    replaced = [old[file.key] for file in changed if file.key in old]
    return Changes(
        added=len(changed) - len(replaced),
        replaced=len(replaced),
        kept=len(new) - len(changed),
        rows_added=sum(file.rows for file in changed),
        rows_removed=sum(file.rows for file in replaced),
    )


@dataclass(frozen=True)
class DataVersion:
    """`run` made it. `added` and `replaced` are paths of files."""

    number: int
    run: str
    created_at: float
    changes: Changes
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSet:
    """A data set with the versions that are kept, newest first."""

    id: str
    name: str
    owner: str
    created_at: float
    versions: tuple[DataVersion, ...] = ()

    @property
    def newest(self) -> int:
        """The number of the newest version; 0 if there is none yet."""
        return self.versions[0].number if self.versions else 0


@dataclass(frozen=True)
class DataRequest:
    """The data set that a new run sends files to, or asks."""

    name: str
    is_upload: bool
    version: int | None = None  # to ask; or that the client saw before it sends. Not given: the newest


@dataclass(frozen=True)
class DataUse:
    """The data set of a run. The version and its changes are known when the run is sealed."""

    data_set: str  # id
    name: str
    is_upload: bool
    seen: int  # the newest version when the client began; 0: there was none
    version: int | None = None
    changes: Changes | None = None

    @property
    def text(self) -> str:
        changes = f": {self.changes.text}" if self.changes else ""
        return f"{self.name}, version {self.version}{changes}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DataUse":
        changes = values.get("changes")
        return cls(**{**values, "changes": Changes(**changes) if changes else None})

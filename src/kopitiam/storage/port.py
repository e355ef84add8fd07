"""The storage port: what callers may rely on, on any adapter.

A key is a path relative to the root, made of names from closed sets. Reading a missing file or folder raises
`FileNotFoundError`; removing one has no effect. A store that cannot be reached raises `Unavailable`; a disk
that is full or read-only, the `OSError` of the system.
"""

from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Protocol

import pyarrow as pa

Key = PurePosixPath


class AlreadyWritten(Exception):
    """A file with other content has this name; such a file is never changed."""


def own_name(key: Key, digest: str) -> Key:
    """A key that carries the digest, so that no other content can have it."""
    return key.with_name(f"{key.stem}-{digest}{key.suffix}")


class StoragePort(Protocol):
    @property
    def is_shared(self) -> bool:
        """Whether others may use the same place: files that the registry does not know may be theirs."""

    # -- durable writes

    def name_of(self, key: Key, digest: str) -> Key:
        """Key under which `keep_once` stores this content."""

    def keep_once(self, file: Path, key: Key, digest: str) -> bool:
        """Store a copy of `file` under `name_of(key, digest)`, durable on return; False if it was there.

        Raises `AlreadyWritten` if other content has the name. A store that cannot refuse a second writer puts
        the digest into the name, and the registry decides which content counts.
        """

    def replace(self, key: Key, data: bytes) -> None:
        """Store the data, durable on return, in place of earlier data."""

    def new_folder(self, key: Key, scratch: Path) -> AbstractContextManager[Path]:
        """A local folder to write files into; they are durable under `key` when the block has succeeded."""

    def settle(self, folder: Key) -> None:
        """Make the files durable that Spark has written below a folder."""

    # -- reading

    def open(self, key: Key) -> pa.NativeFile:
        """Open a file for random access."""

    def path(self, key: Key) -> Path | None:
        """Path of the file on this machine; None if storage is elsewhere."""

    def fetch(self, pattern: str, scratch: Path) -> tuple[Path, ...]:
        """Return the matching files in order, as local files: themselves, or copies in `scratch`."""

    def find(self, pattern: str) -> list[Key]:
        """Return the matching files and folders in order; `*` matches any part of one name."""

    # -- removing

    def remove(self, key: Key) -> None:
        """Remove a file, or a folder with everything below it."""

    def remove_if_empty(self, folder: Key) -> bool:
        """Remove a folder that is empty; True if it does not exist any more."""

    # -- for Spark and operators

    def url(self, key: Key) -> str:
        """The address of a file as Spark spells it."""

    def workspace(self, scratch: Path) -> "StoragePort":
        """Storage for temporary files that Spark sees too."""

    def check(self) -> None:
        """Write, read back and delete a file. Raises `Unavailable`, which says which step failed, and why."""

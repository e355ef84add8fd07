"""What callers may rely on, wherever the bytes lie.

A key is a path relative to the root, made of names from closed sets. A file or folder that is missing
raises `FileNotFoundError`, or is no news where it is to be removed. A store that cannot be reached raises
`Unavailable`; a disk that is full or read-only, the `OSError` of the system.
"""

from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Protocol

import pyarrow as pa

Key = PurePosixPath


class AlreadyWritten(Exception):
    """Another content stands under this name: what is written once is never changed."""


def own_name(key: Key, digest: str) -> Key:
    """A name that no other body can have."""
    return key.with_name(f"{key.stem}-{digest}{key.suffix}")


class StoragePort(Protocol):
    @property
    def is_shared(self) -> bool:
        """Others may keep something there too: what the registry does not know may be theirs."""

    # -- bytes that count for good

    def name_of(self, key: Key, digest: str) -> Key:
        """Where the body of this digest lies that is kept once under `key`."""

    def keep_once(self, file: Path, key: Key, digest: str) -> bool:
        """Durable when it returns, under `name_of(key, digest)`; the file itself stays where it is.

        False if it was there already. `AlreadyWritten` if another body has the name; a store that cannot
        tell gives each body a name of its own, and the registry decides which one counts.
        """

    def replace(self, key: Key, data: bytes) -> None:
        """Durable when it returns, for what may be sent anew; the last one counts."""

    def new_folder(self, key: Key, scratch: Path) -> AbstractContextManager[Path]:
        """A local folder to write files into; they are durable under `key` when the block is left well."""

    def settle(self, folder: Key) -> None:
        """What Spark has written below it is durable when this returns."""

    # -- reading

    def open(self, key: Key) -> pa.NativeFile:
        """For reading at any place of it."""

    def path(self, key: Key) -> Path | None:
        """The file itself, where it lies on this machine."""

    def fetch(self, pattern: str, scratch: Path) -> tuple[Path, ...]:
        """Files that match, in order, as files of this machine: themselves, or copies in `scratch`."""

    def find(self, pattern: str) -> list[Key]:
        """Files and folders that match, in order; `*` stands for any part of one name."""

    # -- removing

    def remove(self, key: Key) -> None:
        """The file, or the folder with all that is below it."""

    def remove_if_empty(self, folder: Key) -> bool:
        """Whether it is gone."""

    # -- for others

    def url(self, key: Key) -> str:
        """As Spark spells it."""

    def workspace(self, scratch: Path) -> "StoragePort":
        """A place for what is thrown away soon, seen by Spark as well."""

    def check(self) -> None:
        """Writes, reads back and deletes; `Unavailable` says which of them failed, and why."""

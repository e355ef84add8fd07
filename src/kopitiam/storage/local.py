"""Storage below the home folder: plain paths, and hard links, which never replace a file. A home that ends
with its process needs no syncs."""

import contextlib
import filecmp
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from kopitiam.storage.port import AlreadyWritten, Key, StoragePort
from kopitiam.storage.probe import probe
from kopitiam.system.crash_points import crash_point
from kopitiam.system.files import make_folder, replace_file, sync, sync_tree


class LocalStorage:
    is_shared = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def name_of(self, key: Key, digest: str) -> Key:
        del digest  # the first content under a name stays
        return key

    def keep_once(self, file: Path, key: Key, digest: str) -> bool:
        path = self.path(self.name_of(key, digest))
        make_folder(path.parent)
        sync(file)
        crash_point("chunk.synced")
        while not _link(file, path):
            try:
                is_same = filecmp.cmp(file, path, shallow=False)
            except FileNotFoundError:  # it was removed meanwhile; if its folder was too, the link fails
                continue
            if not is_same:
                raise AlreadyWritten(str(path))
            sync(path.parent)  # its writer may have crashed before this
            return False
        crash_point("chunk.named")
        sync(path.parent)
        return True

    def replace(self, key: Key, data: bytes) -> None:
        replace_file(self.path(key), data)

    @contextlib.contextmanager
    def new_folder(self, key: Key, scratch: Path) -> Iterator[Path]:
        del scratch
        folder = self.path(key)
        make_folder(folder)
        yield folder
        sync_tree(folder)

    def settle(self, folder: Key) -> None:
        """Sync the folders above it as well: Spark makes them too, and a power cut would lose their names."""
        path = self.path(folder)
        sync_tree(path)
        for above in path.parent.parents:
            if above.is_relative_to(self._root):
                sync(above)

    def open(self, key: Key) -> pa.NativeFile:
        return pa.OSFile(str(self.path(key)))

    def path(self, key: Key) -> Path:
        return self._root / key

    def fetch(self, pattern: str, scratch: Path) -> tuple[Path, ...]:
        del scratch
        return tuple(self.path(key) for key in self.find(pattern))

    def find(self, pattern: str) -> list[Key]:
        return sorted(Key(path.relative_to(self._root)) for path in self._root.glob(pattern))

    def remove(self, key: Key) -> None:
        path = self.path(key)
        if path.is_file():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)

    def remove_if_empty(self, folder: Key) -> bool:
        try:
            self.path(folder).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def url(self, key: Key) -> str:
        return str(self.path(key))

    def workspace(self, scratch: Path) -> StoragePort:
        return LocalStorage(scratch)

    def check(self) -> None:
        probe(self)


class TemporaryStorage(LocalStorage):
    """Storage in a folder that is removed with its process: nothing is synced, since nothing outlives it."""

    def replace(self, key: Key, data: bytes) -> None:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    @contextlib.contextmanager
    def new_folder(self, key: Key, scratch: Path) -> Iterator[Path]:
        del scratch
        folder = self.path(key)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder

    def settle(self, folder: Key) -> None:
        pass


def _link(file: Path, path: Path) -> bool:
    """Link the file; False if the name exists. Unlike a rename, a link never replaces a file."""
    try:
        os.link(file, path)
    except FileExistsError:
        return False
    return True

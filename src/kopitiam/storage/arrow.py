"""Storage on any file system that both pyarrow and Spark support: S3 and compatible stores, HDFS, a mounted
folder.

Not all of them refuse a second writer, so a file that is written once carries its digest in its name: one
name has only ever one content. An object store shows an object when it is complete; elsewhere a file is
written under a temporary name first.
"""

import contextlib
import fnmatch
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from kopitiam.contracts.errors import Unavailable
from kopitiam.storage.port import Key, StoragePort, own_name
from kopitiam.storage.probe import probe
from kopitiam.system.crash_points import crash_point
from kopitiam.system.files import make_folder, sync, sync_tree

T = TypeVar("T")
_ATOMIC_STORES = frozenset({"s3", "gcs", "abfs"})
_TRANSFERS = 8  # at once
_DETAILS = re.compile(r"\n|; Details| \(Request ID")
_TRIES = 100  # to remove a folder while other processes remove its files too: each try removes at least one


class ArrowStorage:
    is_shared = True

    def __init__(self, filesystem: fs.FileSystem, root: str, spark_root: str) -> None:
        self._fs, self._root, self._spark_root = filesystem, root, spark_root
        self._is_mounted = filesystem.type_name == "local"

    def name_of(self, key: Key, digest: str) -> Key:
        return own_name(key, digest)

    def keep_once(self, file: Path, key: Key, digest: str) -> bool:
        name = self.name_of(key, digest)
        crash_point("chunk.synced")
        with _translated():
            info = self._fs.get_file_info(self._full(name))
            if info.type == fs.FileType.File and info.size == file.stat().st_size:
                self._sync(self._full(name.parent))  # its writer may have crashed before this
                return False
            self._put(name, _content(file))
        crash_point("chunk.named")
        return True

    def replace(self, key: Key, data: bytes) -> None:
        with _translated():
            self._put(key, pa.py_buffer(data))

    @contextlib.contextmanager
    def new_folder(self, key: Key, scratch: Path) -> Iterator[Path]:
        with TemporaryDirectory(prefix="outgoing-", dir=scratch) as name:
            folder = Path(name)
            yield folder
            with _translated():
                _in_parallel(
                    lambda file: self._put(key / file.name, _content(file)), sorted(folder.iterdir())
                )

    def settle(self, folder: Key) -> None:
        if self._is_mounted:
            with _translated():
                sync_tree(Path(self._full(folder)))

    def open(self, key: Key) -> pa.NativeFile:
        with _translated():
            return self._fs.open_input_file(self._full(key))

    def path(self, key: Key) -> Path | None:
        del key
        return None

    def fetch(self, pattern: str, scratch: Path) -> tuple[Path, ...]:
        folder = scratch / f"fetched-{uuid.uuid4().hex}"
        folder.mkdir()

        def copy(key: Key) -> Path:
            target = folder / key.name
            fs.copy_files(
                self._full(key),
                str(target),
                source_filesystem=self._fs,
                destination_filesystem=fs.LocalFileSystem(),
            )
            return target

        with _translated():
            return tuple(_in_parallel(copy, self.find(pattern)))

    def find(self, pattern: str) -> list[Key]:
        """Search level by level, and list a folder only for a name with `*`."""
        keys, name = [Key()], ""
        for name in pattern.split("/"):
            if "*" in name:
                keys = [key for folder in keys for key in self._children(folder, name)]
            else:
                keys = [folder / name for folder in keys]
        if "*" in name:
            return sorted(keys)
        with _translated():
            infos = self._fs.get_file_info([self._full(key) for key in keys])
        candidates = zip(keys, infos, strict=True)
        return sorted(key for key, info in candidates if info.type != fs.FileType.NotFound)

    def remove(self, key: Key) -> None:
        full = self._full(key)
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError), _translated():
                kind = self._fs.get_file_info(full).type
                if kind == fs.FileType.File:
                    self._fs.delete_file(full)
                elif kind == fs.FileType.Directory:
                    self._fs.delete_dir(full)
                return
        raise Unavailable("storage: a folder is being changed while it is removed")

    def remove_if_empty(self, folder: Key) -> bool:
        if self._children(folder, "*"):
            return False
        self.remove(folder)
        return True

    def url(self, key: Key) -> str:
        return f"{self._spark_root}/{key}" if key.parts else self._spark_root

    def workspace(self, scratch: Path) -> StoragePort:
        del scratch  # Spark's executors may be on other machines
        return self

    def check(self) -> None:
        probe(self)

    def _full(self, key: Key) -> str:
        return f"{self._root}/{key}" if key.parts else self._root

    def _children(self, folder: Key, pattern: str) -> list[Key]:
        selector = fs.FileSelector(self._full(folder), allow_not_found=True)
        try:
            infos = self._fs.get_file_info(selector)
        except NotADirectoryError:
            return []
        except (OSError, pa.ArrowException) as error:
            raise _unavailable(error) from error
        return [folder / name for name in fnmatch.filter([info.base_name for info in infos], pattern)]

    def _put(self, key: Key, data: pa.Buffer) -> None:
        target = self._full(key)
        if self._fs.type_name in _ATOMIC_STORES:
            self._write(target, data)
            return
        folder = self._full(key.parent)
        temporary = f"{folder}/.{key.name}.{uuid.uuid4().hex}"
        self._make_folder(folder)
        try:
            self._write(temporary, data)
            self._sync(temporary)
            self._name(temporary, target)
            self._sync(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.delete_file(temporary)
            raise

    def _write(self, target: str, data: pa.Buffer) -> None:
        with self._fs.open_output_stream(target) as stream:
            stream.write(data)

    def _name(self, temporary: str, target: str) -> None:
        """Rename. HDFS does not replace a file, so an existing target is deleted first."""
        if not self._is_mounted and self._fs.get_file_info(target).type == fs.FileType.File:
            self._fs.delete_file(target)
        self._fs.move(temporary, target)

    def _make_folder(self, folder: str) -> None:
        if self._is_mounted:
            make_folder(Path(folder))
        else:
            self._fs.create_dir(folder, recursive=True)

    def _sync(self, path: str) -> None:
        """Only a mounted folder needs it; other stores sync by themselves."""
        if self._is_mounted:
            sync(Path(path))


def _content(file: Path) -> pa.Buffer:
    if not file.stat().st_size:
        return pa.py_buffer(b"")
    with pa.memory_map(str(file)) as content:
        return content.read_buffer()


def _in_parallel(work: Callable[..., T], items: Iterable[object]) -> list[T]:
    with ThreadPoolExecutor(_TRANSFERS, thread_name_prefix="storage") as threads:
        return list(threads.map(work, items))


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Translate errors of the store to `Unavailable`; a missing file stays `FileNotFoundError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> Unavailable:
    """The reason without paths and addresses, since clients see it; the log has the whole error."""
    number = getattr(error, "errno", None)
    reason = os.strerror(number) if number else str(error).rpartition("AWS Error ")[2]
    return Unavailable(f"storage: {_DETAILS.split(reason, maxsplit=1)[0]}")

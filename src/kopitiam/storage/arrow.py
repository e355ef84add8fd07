"""Storage on any file system that both pyarrow and Spark speak: S3 and its kin, HDFS, a mounted folder.

None of them can be relied on to refuse a second writer, so what is written once bears the digest of its body
in its name: under one name there is only ever one content. A store of objects shows an object when it is
whole; elsewhere a file is written under another name first.
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
_WHOLE_OR_NOT_AT_ALL = frozenset({"s3", "gcs", "abfs"})
_AT_ONCE = 8  # transfers
_TRIMMINGS = re.compile(r"\n|; Details| \(Request ID")
_TRIES = 100  # to remove a folder from which others remove as well, each time a file at least


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
            found = self._fs.get_file_info(self._full(name))
            if found.type == fs.FileType.File and found.size == file.stat().st_size:
                self._sync(self._full(name.parent))  # whoever wrote it may have died before this
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
                _all(lambda file: self._put(key / file.name, _content(file)), sorted(folder.iterdir()))

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
            return tuple(_all(copy, self.find(pattern)))

    def find(self, pattern: str) -> list[Key]:
        """Level by level: only what a `*` stands for is listed."""
        found, name = [Key()], ""
        for name in pattern.split("/"):
            if "*" in name:
                found = [key for folder in found for key in self._children(folder, name)]
            else:
                found = [folder / name for folder in found]
        if "*" in name:
            return sorted(found)
        with _translated():
            infos = self._fs.get_file_info([self._full(key) for key in found])
        there = zip(found, infos, strict=True)
        return sorted(key for key, info in there if info.type != fs.FileType.NotFound)

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
        if self._fs.type_name in _WHOLE_OR_NOT_AT_ALL:
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
        """HDFS does not rename onto a file: what is there goes first."""
        if not self._is_mounted and self._fs.get_file_info(target).type == fs.FileType.File:
            self._fs.delete_file(target)
        self._fs.move(temporary, target)

    def _make_folder(self, folder: str) -> None:
        if self._is_mounted:
            make_folder(Path(folder))
        else:
            self._fs.create_dir(folder, recursive=True)

    def _sync(self, path: str) -> None:
        """Only a mounted folder leaves this to its users."""
        if self._is_mounted:
            sync(Path(path))


def _content(file: Path) -> pa.Buffer:
    if not file.stat().st_size:
        return pa.py_buffer(b"")
    with pa.memory_map(str(file)) as content:
        return content.read_buffer()


def _all(work: Callable[..., T], what: Iterable[object]) -> list[T]:
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="storage") as threads:
        return list(threads.map(work, what))


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """What is not there is told as it is; any other trouble is the store's."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> Unavailable:
    """In a few words, which clients may hear: paths and addresses are for the log."""
    number = getattr(error, "errno", None)
    told = os.strerror(number) if number else str(error).rpartition("AWS Error ")[2]
    return Unavailable(f"storage: {_TRIMMINGS.split(told, maxsplit=1)[0]}")

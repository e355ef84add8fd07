"""Files of this machine that are on disk for good: synced, then named, then the name is synced."""

import os
import uuid
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Durable when it returns, for what may be sent anew; the last one counts."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync_tree(folder: Path) -> None:
    """Everything below it, and its own name."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        sync(path)


def sync(path: Path) -> None:
    """Of a file its bytes, of a folder the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

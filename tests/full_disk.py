"""A small private disk that a test can fill to the last byte."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from debian import skip_or_fail

ROOM_BYTES = 8 << 20


@contextmanager
def mounted(folder: Path, room_bytes: int = ROOM_BYTES) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={room_bytes}", "kopitiam-test", str(folder)]
    try:
        mounting = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        skip_or_fail("there is no mount here")
    if mounting.returncode:
        skip_or_fail(f"no disk of its own: {mounting.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space left"):
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                if size == 1:
                    raise

"""Lists folders that change meanwhile: unlike a glob, files may vanish."""

import os
from collections.abc import Iterator
from pathlib import Path


def paths_below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        yield from (Path(place) / name for name in (*folders, *files))


def files_below(folder: Path) -> Iterator[Path]:
    for place, _, files in os.walk(folder):
        yield from (Path(place) / name for name in files)

"""A folder after a power cut, rebuilt from the log of its syncs."""

import random
from pathlib import Path

import pytest

from tools.reliability.recorded_syncs import Disk

ROOT, FOLDER, FILE, OTHER = 1, 2, 3, 4


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """A file is synced, its folder named in the root, the file named in the folder, then acknowledged."""
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    copies = {
        "bytes": "rows",
        "root": f"{FOLDER} d landing\n",
        "folder": f"{FILE} f chunk one\n",
        "both": f"{FILE} f chunk one\n{OTHER} f unsynced\n",
        "more": "rows and rows",
    }
    for name, content in copies.items():
        (recorded / name).write_text(content)
    log = [
        f"F {FILE} bytes",
        f"D {ROOT} root",
        f"D {FOLDER} folder",
        "A",
        f"D {FOLDER} both",
        f"F {FILE} more",
    ]
    (recorded / "log").write_text("\n".join(log) + "\n")
    return Disk(recorded, ROOT)


def files_in(home: Path) -> dict[str, str]:
    return {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("moment", "files"),
    [
        (1, {}),  # bytes without a name
        (2, {}),  # a folder without the name
        (3, {"landing/chunk one": "rows"}),
        (5, {"landing/chunk one": "rows", "landing/unsynced": ""}),  # a name without bytes
        (6, {"landing/chunk one": "rows and rows", "landing/unsynced": ""}),
    ],
)
def test_synced_bytes_survive_under_synced_names_only(
    disk: Disk, tmp_path: Path, moment: int, files: dict[str, str]
) -> None:
    disk.rebuild(moment, tmp_path / "home")
    assert files_in(tmp_path / "home") == files


def test_a_cut_inside_a_sync_leaves_a_part_of_the_new_bytes(disk: Disk, tmp_path: Path) -> None:
    parts = set()
    for seed in range(20):
        home = tmp_path / str(seed)
        disk.rebuild(5, home, random.Random(seed))
        parts.add(files_in(home)["landing/chunk one"])
    assert len(parts) > 3
    assert all("rows and rows".startswith(part) for part in parts)


def test_acknowledgements_are_found_in_the_log(disk: Disk) -> None:
    assert disk.acknowledgements() == [3]

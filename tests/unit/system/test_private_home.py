"""The home folder is for its user alone. Each test has a process, since the umask is that of a process."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trees import paths_below

pytestmark = pytest.mark.slow

WRITE = """
import sys
from pathlib import Path
from kopitiam.system.files import keep_private
from kopitiam.registry import open_registry

home = Path(sys.argv[1])
keep_private(home, *sys.argv[2:])
open_registry("sqlite", home).close()
(home / "landing" / "table=users").mkdir(parents=True)
(home / "landing" / "table=users" / "chunk").write_text("1990-01-01")
"""


def write(home: Path, *umask: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(home), *umask],
        capture_output=True,
        text=True,
        check=False,
        umask=0o022,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_and_all_in_it_is_closed_to_others(tmp_path: Path) -> None:
    home = tmp_path / "far" / "home"
    assert write(home) == ""
    modes = {path: mode(path) for path in (home, *paths_below(home))}
    assert len(modes) > 3
    assert {path: found for path, found in modes.items() if found & 0o077} == {}


def test_a_home_that_was_open_is_closed_with_a_word_about_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for folder in (home, home / "results"):
        folder.mkdir()
        folder.chmod(0o755)
    (home / "registry.sqlite").touch()
    (home / "registry.sqlite").chmod(0o644)
    said = write(home)
    assert "closed to other users: " in said
    assert str(home / "results") in said
    assert [mode(path) for path in (home, home / "results", home / "registry.sqlite")] == [
        0o700,
        0o700,
        0o600,
    ]


def test_a_group_may_read_if_the_settings_say_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home, "027")
    assert mode(home) == 0o750
    assert mode(home / "landing" / "table=users" / "chunk") == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_the_way_to_a_server_of_another_user_stays_open_and_the_rest_is_closed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "services" / "postgresql").mkdir(parents=True)
    for folder in (home, home / "services"):
        folder.chmod(0o755)
    write(home)
    assert [mode(folder) for folder in (home, home / "services", home / "landing")] == [0o711, 0o711, 0o700]

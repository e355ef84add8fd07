"""The PostgreSQL service: which installation runs, and under which user account."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.services import postgresql
from kopitiam.fleet.services.postgresql import Account, account_for, find_binaries


@pytest.fixture
def open_folder():
    """A folder that every user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="kopitiam-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs programs that only print their version."""

    def install(*versions: str):
        folders = []
        for version in versions:
            folder = tmp_path / version
            folder.mkdir()
            for name in ("postgres", "initdb"):
                (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
                (folder / name).chmod(0o755)
            folders.append(folder)
        monkeypatch.setattr(postgresql, "_folders", lambda: folders)

    return install


def test_new_data_use_the_newest_installed_version(installed, tmp_path):
    installed("9.6", "18.4", "15.18")
    assert find_binaries(tmp_path / "data").name == "18.4"


def test_existing_data_use_the_version_that_created_them(installed, tmp_path):
    installed("18.4", "15.18")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PG_VERSION").write_text("15\n")
    assert find_binaries(tmp_path / "data").name == "15.18"
    (tmp_path / "data" / "PG_VERSION").write_text("16\n")
    with pytest.raises(ConfigError, match="data are of PostgreSQL 16, which is not installed; install it"):
        find_binaries(tmp_path / "data")


def test_without_postgresql_the_error_says_what_to_install(installed, tmp_path):
    installed()
    with pytest.raises(
        ConfigError, match=r"^postgresql: PostgreSQL is not installed; install it.*kopitiam\[cluster\]"
    ):
        find_binaries(tmp_path / "data")


def test_the_development_environment_has_postgresql(tmp_path):
    folder = find_binaries(tmp_path / "data")
    assert os.access(folder / "postgres", os.X_OK)


def test_the_server_runs_as_the_owner_of_its_data(tmp_path):
    status = tmp_path.stat()
    assert account_for(tmp_path) == Account(status.st_uid, status.st_gid)


def test_new_data_belong_to_an_unprivileged_user(tmp_path):
    account = account_for(tmp_path / "data")
    assert account.uid != 0
    assert account.is_current_user == (os.geteuid() != 0)


def test_the_current_user_runs_the_command_unchanged(tmp_path):
    account = Account(os.geteuid(), os.getegid())
    assert account.command(("postgres", "-D", "data"), needed=(tmp_path,)) == ("postgres", "-D", "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_another_user_gets_a_capability_only_to_pass_closed_folders(open_folder):
    file = open_folder / "folder" / "file"
    file.parent.mkdir()
    file.write_text("reached")
    account = account_for(open_folder / "none")

    def read() -> tuple[str, bool]:
        command = account.command(("cat", str(file)), needed=(file,))
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        return process.stdout, any("caps" in word for word in command)

    assert read() == ("reached", False)
    file.parent.chmod(0o700)
    assert read() == ("reached", True)

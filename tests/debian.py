"""Installs missing packages that tests need, on Debian as root, one worker at a time."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_POLICY = Path("/usr/sbin/policy-rc.d")  # decides whether a package may start its service
_LOCK = Path(tempfile.gettempdir()) / "kopitiam-tests-apt.lock"
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120")


def can_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(*packages: str, is_there: Callable[[], bool]) -> None:
    """Install the packages, unless another worker did so in the meantime."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_there():
            with _services_stay_off():
                _run(*_APT, "update")
                _run(*_APT, "install", "-y", "--no-install-recommends", *packages)


def skip_or_fail(reason: str) -> None:
    """Skip the test for a missing package; in CI, fail it."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def _services_stay_off() -> Iterator[None]:
    """Keep packages from starting their system services."""
    is_ours = not _POLICY.exists()
    if is_ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if is_ours:
            _POLICY.unlink()


def _run(*command: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)

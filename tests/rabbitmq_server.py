"""A private RabbitMQ for tests; on Debian, as root, it is installed where it is missing."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kopitiam.bus.private_broker import PrivateBroker, find_epmd, find_server
from kopitiam.contracts.errors import ConfigError

POLICY = Path("/usr/sbin/policy-rc.d")  # asked before a package starts its service
APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120")


@contextmanager
def private_rabbitmq() -> Iterator[PrivateBroker]:
    """Runs while the block lasts, and leaves nothing behind."""
    ensure_installed()
    folder = Path(tempfile.mkdtemp(prefix="kopitiam-rabbitmq-"))
    broker = PrivateBroker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def ensure_installed() -> None:
    try:
        find_server(), find_epmd()
    except ConfigError:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise
        with services_stay_off():
            run(*APT, "update")
            run(*APT, "install", "-y", "--no-install-recommends", "rabbitmq-server")


@contextmanager
def services_stay_off() -> Iterator[None]:
    """Or the package would leave a broker of the system running."""
    is_ours = not POLICY.exists()
    if is_ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if is_ours:
            POLICY.unlink()


def run(*command: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)

"""A private RabbitMQ for tests; installed if it is missing, on Debian as root."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from debian import can_install, install, skip_or_fail
from kopitiam.bus.private_broker import PrivateBroker, find_epmd, find_server
from kopitiam.contracts.errors import ConfigError


@contextmanager
def private_rabbitmq() -> Iterator[PrivateBroker]:
    """Run a server for the duration of the block, and remove its files."""
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
    """Skip the test if RabbitMQ is missing; in CI, fail it."""
    try:
        if not _is_installed() and can_install():
            install("rabbitmq-server", is_there=_is_installed)
        find_server(), find_epmd()
    except (ConfigError, OSError, subprocess.SubprocessError) as error:
        skip_or_fail(f"no RabbitMQ: {type(error).__name__}: {error}")


def _is_installed() -> bool:
    try:
        find_server(), find_epmd()
    except ConfigError:
        return False
    return True

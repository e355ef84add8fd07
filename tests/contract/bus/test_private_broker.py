"""The private broker: loopback only, its own user, and no processes left after a stop."""

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

import psutil
import pytest

from kopitiam.bus import private_broker
from kopitiam.bus.private_broker import PrivateBroker
from kopitiam.bus.rabbitmq import RabbitBus
from kopitiam.contracts.errors import BusUnavailable, ConfigError, ServiceError
from waiting import eventually


def folder_of(broker: PrivateBroker) -> Path:
    return Path(psutil.Process(broker.pid).environ()["HOME"])


def processes_of(folder: Path) -> list[str]:
    """Names of the processes that use this folder: the broker, its epmd, and their children."""
    names = []
    for process in psutil.process_iter(["name", "status"]):
        try:
            if process.environ().get("HOME") == str(folder):
                names.append(process.name())
        except psutil.Error:
            continue
    return names


@pytest.fixture
def own_folder(rabbitmq):
    folder = Path(tempfile.mkdtemp(prefix="kopitiam-rabbitmq-"))
    yield folder
    PrivateBroker(folder).kill()
    shutil.rmtree(folder)


def test_it_listens_on_the_loopback_interface_only(rabbitmq) -> None:
    processes = [psutil.Process(rabbitmq.pid)]
    processes += [psutil.Process(int((folder_of(rabbitmq) / "epmd.pid").read_text()))]
    listening = {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1", "::1"}


def test_only_its_own_user_can_log_in(rabbitmq) -> None:
    port = rabbitmq.url.rpartition(":")[2]
    with pytest.raises(BusUnavailable, match="refused"):
        RabbitBus(f"amqp://guest:guest@127.0.0.1:{port}")


def test_its_secrets_are_readable_by_its_owner_only(rabbitmq) -> None:
    folder = folder_of(rabbitmq)
    for name in ("broker.json", "rabbitmq.conf", ".erlang.cookie"):
        assert stat.S_IMODE((folder / name).stat().st_mode) & 0o077 == 0, name


def test_another_process_finds_the_running_broker_by_its_folder(rabbitmq) -> None:
    other = PrivateBroker(folder_of(rabbitmq))
    assert (other.url, other.pid) == (rabbitmq.url, rabbitmq.pid)
    other.start()
    assert other.pid == rabbitmq.pid, "the broker that runs is not started again"


@pytest.mark.long
def test_another_process_can_stop_the_broker_by_its_folder_and_no_process_is_left(own_folder) -> None:
    broker = PrivateBroker(own_folder)
    broker.start()
    with contextlib.closing(RabbitBus(broker.url)) as bus:
        bus.check()
    assert len(processes_of(own_folder)) >= 2
    PrivateBroker(own_folder).stop()
    assert broker.pid is None
    eventually(lambda: not processes_of(own_folder))  # its helpers follow it


def test_a_pid_that_was_reused_is_not_taken_for_the_broker(tmp_path) -> None:
    (tmp_path / "broker.pid").write_text(str(os.getpid()))
    broker = PrivateBroker(tmp_path)
    assert broker.pid is None
    broker.kill()


def test_a_server_that_does_not_start_is_reported_with_the_reason_and_leaves_no_process(
    tmp_path, monkeypatch
) -> None:
    server = tmp_path / "rabbitmq-server"
    server.write_text("#!/bin/sh\necho 'no space left'\nexit 1\n")
    server.chmod(0o755)
    monkeypatch.setattr(private_broker, "_SERVER", server)
    with pytest.raises(ServiceError, match="ended while starting: no space left"):
        PrivateBroker(tmp_path / "broker").start()
    assert processes_of(tmp_path / "broker") == []


def test_a_missing_rabbitmq_is_reported_with_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(private_broker, "_SERVER", tmp_path / "missing")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt-get install"):
        PrivateBroker(tmp_path).start()


def test_a_requested_port_is_recorded_with_the_password(tmp_path) -> None:
    first = PrivateBroker(tmp_path).url
    requested_url = PrivateBroker(tmp_path, 12345).url
    assert requested_url.endswith("@127.0.0.1:12345")
    assert requested_url.rpartition(":")[0] == first.rpartition(":")[0]
    assert PrivateBroker(tmp_path).url == requested_url

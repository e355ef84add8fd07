"""A private RabbitMQ broker: one folder, its own user, on the loopback interface unless told otherwise.

The folder holds its whole state, so that any process can stop it, or restart it on the same port and data.
Its own epmd (Erlang's port mapper) starts and stops with it.
"""

import contextlib
import json
import math
import os
import random
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import psutil

from kopitiam.contracts.addresses import bracketed, reachable
from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.system.files import locked, replace_file

START_SECONDS = 120.0  # on a loaded machine
STOP_SECONDS = 20.0
USER = "kopitiam"
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the wrapper on the PATH may need another user
_PORTS = range(10_000, 30_000)  # below the ephemeral ports
_INSTALL = "install RabbitMQ, for example: apt-get install --no-install-recommends rabbitmq-server"
_ON_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
# RabbitMQ syncs the table that maps quorum queues to their logs up to a second late. A queue missing from it
# after a crash loses confirmed messages and elects no leader.
_WRITE_AT_ONCE = (
    "-eval spawn(fun()->F=fun(G)->timer:sleep(20),catch(dets:sync(ra_directory_reverse)),G(G)end,F(F)end)."
)
_ELECT = "[ra:trigger_election(amqqueue:get_pid(Q)) || Q <- rabbit_amqqueue:list(), amqqueue:is_quorum(Q)]."
_IDENTITY_FILE = "broker.json"
_AMQP_HEADER = b"AMQP\x00\x00\x09\x01"


class _Identity(TypedDict):
    port: int
    password: str


class PrivateBroker:
    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        *,
        password: str | None = None,
        listen: str = "127.0.0.1",
        host: str = "127.0.0.1",
    ) -> None:
        """Without `port` and `password`, use the folder's recorded ones; the first start records random ones.

        `host` is the name under which clients reach the address `listen`.
        """
        self._folder = folder.resolve()
        self._wanted_port, self._wanted_password = port, password
        self._listen, self._host = listen, host
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        identity = self._identity()
        return self.url_at(identity["port"], identity["password"])

    def url_at(self, port: int, password: str) -> str:
        return f"amqp://{USER}:{password}@{bracketed(self._host)}:{port}"

    @property
    def pid(self) -> int | None:
        """None when it is not running."""
        process = self._process("broker")
        return process.pid if process else None

    def start(self) -> None:
        """Return when the broker accepts connections; at once if it is running.

        Raises `ConfigError` if RabbitMQ is not installed, `ServiceError` if it does not start.
        """
        server, epmd = find_server(), find_epmd()
        with self._locked():
            if self.pid is None:
                self._end("epmd", at_once=True)  # left by a killed broker
                try:
                    self._launch(server, epmd)
                except BaseException as error:
                    self.kill()
                    if isinstance(error, OSError):
                        raise ServiceError(f"rabbitmq: {self._folder}: {error.strerror}") from None
                    raise

    def stop(self) -> None:
        self._end("broker", at_once=False)
        self._end("epmd", at_once=False)

    def kill(self) -> None:
        """As `kill -9`; confirmed messages are on disk."""
        self._end("broker", at_once=True)
        self._end("epmd", at_once=True)

    def _launch(self, server: Path, epmd: Path) -> None:
        before, identity = self._recorded(), self._identity()
        is_first_start = not (self._folder / "data").exists()
        self._write_files(identity)
        dist_port, epmd_port = free_port(), free_port()
        environment = self._environment(dist_port, epmd_port)
        self._spawn("epmd", [str(epmd), "-address", "127.0.0.1", "-port", str(epmd_port)], environment)
        broker = self._spawn("broker", [str(server)], environment)
        self._wait_for(broker, identity["port"])
        if is_first_start:
            return
        control = str(server.with_name("rabbitmqctl"))
        _control([control, "eval", _ELECT], environment)
        if before and before["password"] != identity["password"]:
            if not _control([control, "change_password", USER], environment, identity["password"]):
                raise ServiceError("rabbitmq: its password cannot be changed to that of services.secret")
            self._write(_IDENTITY_FILE, json.dumps(identity))

    def _wait_for(self, broker: subprocess.Popen[bytes], port: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not takes_connections(reachable(self._listen), port):
            if broker.poll() is not None:
                raise ServiceError(f"rabbitmq: it ended while starting: {self._last_log_lines()}")
            if time.monotonic() > deadline:
                raise ServiceError(f"rabbitmq: not up after {START_SECONDS:.0f} s: {self._last_log_lines()}")
            time.sleep(0.1)

    def _environment(self, dist_port: int, epmd_port: int) -> dict[str, str]:
        folder = self._folder
        return {
            "HOME": str(folder),
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RABBITMQ_NODENAME": f"{USER}@localhost",  # the data are bound to this name
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{_ON_LOOPBACK} {_WRITE_AT_ONCE}",
            "RABBITMQ_CTL_ERL_ARGS": _ON_LOOPBACK,
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
            "RUNNING_UNDER_SYSTEMD": "true",  # makes the script exec the server
        }

    def _write_files(self, identity: _Identity) -> None:
        self._write(
            "rabbitmq.conf",
            f"listeners.tcp.1 = {bracketed(self._listen)}:{identity['port']}\n"
            f"default_user = {USER}\n"  # replaces guest
            f"default_pass = {identity['password']}\n"
            "log.file.level = warning\n"
            "log.connection.level = error\n"  # probes close without a handshake
            "raft.wal_max_size_bytes = 33554432\n",  # also bounds memory
        )
        self._write("advanced.config", "[].\n")
        self._write("enabled_plugins", "[].\n")
        if not (self._folder / ".erlang.cookie").exists():
            self._write(".erlang.cookie", secrets.token_hex(20), mode=0o400)

    def _identity(self) -> _Identity:
        """Port and password of the next start. A new password is recorded once the broker's data have it."""
        known = self._recorded()
        identity = _Identity(
            port=self._wanted_port or (known["port"] if known else free_port()),
            password=self._wanted_password or (known["password"] if known else secrets.token_hex(16)),
        )
        if known is None or (known["password"] == identity["password"] and known != identity):
            self._write(_IDENTITY_FILE, json.dumps(identity))
        return identity

    def _recorded(self) -> _Identity | None:
        path = self._folder / _IDENTITY_FILE
        known: _Identity | None = json.loads(path.read_text()) if path.exists() else None
        return known

    def _write(self, name: str, text: str, mode: int = 0o600) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self._folder / name, text.encode(), mode)

    def _spawn(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        log = self._folder / "log" / f"{name}.out"
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as output:
            child = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in our terminal must not reach it
            )
        self._children.append(child)
        self._write(f"{name}.pid", str(child.pid))
        return child

    def _process(self, name: str) -> psutil.Process | None:
        """None if it ended; its pid may belong to another process by now."""
        try:
            process = psutil.Process(int((self._folder / f"{name}.pid").read_text()))
            return process if process.environ().get("HOME") == str(self._folder) else None
        except (FileNotFoundError, ValueError, psutil.Error):
            return None

    def _end(self, name: str, at_once: bool) -> None:
        process = self._process(name)
        if process is None:
            return
        try:
            if not at_once:
                process.terminate()
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(STOP_SECONDS)
                    return
            process.kill()
            process.wait(STOP_SECONDS)
        except psutil.NoSuchProcess:
            return
        except psutil.TimeoutExpired:
            raise ServiceError(f"rabbitmq: process {process.pid} ({name}) does not end") from None

    def _last_log_lines(self) -> str:
        lines = (self._folder / "log" / "broker.out").read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two brokers on the same data would corrupt them."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self._folder / "lock", math.inf):
            yield


def find_server() -> Path:
    server = str(_SERVER) if _SERVER.exists() else shutil.which("rabbitmq-server")
    if server is None:
        raise ConfigError(f"rabbitmq: there is no rabbitmq-server; {_INSTALL}")
    return Path(server)


def find_epmd() -> Path:
    epmd = shutil.which("epmd")
    if epmd is None:
        raise ConfigError(f"rabbitmq: there is no epmd, which is part of Erlang; {_INSTALL}")
    return Path(epmd)


def free_port() -> int:
    """A free port outside the ephemeral range, where a client of a dead server could connect to itself."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ServiceError("rabbitmq: no free port on 127.0.0.1")


def _control(command: list[str], environment: dict[str, str], text: str = "") -> bool:
    """Run a command of the broker with `text` as its input; returns whether it succeeded."""
    options: dict[str, Any] = {"env": environment, "input": text.encode(), "capture_output": True}
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(command, check=False, timeout=STOP_SECONDS, **options).returncode == 0
    return False


def takes_connections(host: str, port: int) -> bool:
    """Whether the server answers with an AMQP frame; an open port alone does not prove that it works."""
    try:
        with socket.create_connection((host, port), timeout=2) as client:
            client.sendall(_AMQP_HEADER)
            return client.recv(1) == b"\x01"
    except OSError:
        return False

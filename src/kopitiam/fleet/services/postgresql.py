"""A PostgreSQL of the fleet's own: it takes up the same data on the same port after whatever ended it."""

import secrets
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from kopitiam.bus.private_broker import free_port
from kopitiam.contracts.config import RegistrySection, Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.fleet.families import ask_to_end, end_at_once, working_in
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.processes import Program, launch, stopping
from kopitiam.fleet.records import read_record
from kopitiam.fleet.services.addresses import answer_of, kept_url, port_of, read_url, require_url
from kopitiam.fleet.services.postgresql_binaries import find_binaries
from kopitiam.fleet.services.unprivileged import Account, account_for
from kopitiam.system.files import let_pass

START_SECONDS = 60.0  # recovery after a crash included
STOP_SECONDS = 20.0
USER, DATABASE = "kopitiam", "postgres"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so that a crash leaves nothing elsewhere
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "jit": "off",
    "log_checkpoints": "off",
}


class PostgreSQL:
    name = "postgresql"

    def __init__(self, settings: Settings) -> None:
        self._home = FleetHome(settings.home)
        self._folder = self._home.service(self.name)
        self._data = self._folder / "data"
        self._lock_file = self._data / "postmaster.pid"

    def start(self) -> bool:
        launched = launch(self._home, Program(self.name, "service", self._command, self.family))
        launched.settle_when(self.probe, START_SECONDS)
        return launched.child is not None

    def stop(self) -> bool:
        def end() -> None:
            record = read_record(self._home, self.name)
            postmaster = record.process() if record else None
            ask_to_end(postmaster, signal.SIGINT, STOP_SECONDS)  # at a SIGTERM it would wait for its clients
            end_at_once(self.name, self.family)
            self._lock_file.unlink(missing_ok=True)

        return stopping(self._home, self.name, self.family, end)

    def probe(self) -> bool:
        """Asks to log in: one that is still starting refuses, one that is ready wants to see a password."""
        url = self.url()
        return url is not None and answer_of(url, _login_request())[:1] == b"R"

    def url(self) -> str | None:
        return read_url(self._folder)

    def fill(self, settings: Settings) -> Settings:
        if settings.registry.url != "sqlite":
            return settings
        return settings.model_copy(update={"registry": RegistrySection(url=require_url(self._folder))})

    def family(self) -> list[psutil.Process]:
        return working_in(self._data)

    def _command(self) -> tuple[str, ...]:
        binaries = find_binaries(self._data)
        account = account_for(self._data)
        url = kept_url(self._folder, _choose_url)
        if not account.is_ourselves:
            self._folder.mkdir(parents=True, exist_ok=True)
            for folder in (self._home.path, self._folder.parent, self._folder):
                let_pass(folder)
        if not self._data.exists():
            self._initialize(binaries, account, urlsplit(url).password or "")
        self._lock_file.unlink(missing_ok=True)  # its number may have gone to another process
        settings = {**_SETTINGS, "port": str(port_of(url))}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = binaries / "postgres"
        return account.command((str(server), "-D", str(self._data), *options), needed=(self._data, server))

    def _initialize(self, binaries: Path, account: Account, password: str) -> None:
        """Under another name first: half a data folder is never taken for a whole one."""
        unfinished, password_file = self._folder / "data.new", self._folder / "password.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        password_file.unlink(missing_ok=True)
        password_file.touch(mode=0o600)
        password_file.write_text(password, encoding="utf-8")
        for path in (unfinished, password_file):
            account.own(path)
        options = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", f"--username={USER}")
        places = (f"--pgdata={unfinished}", f"--pwfile={password_file}")
        initdb = binaries / "initdb"
        command = account.command((str(initdb), *options, *places), needed=(unfinished, initdb))
        made = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        password_file.unlink()
        if made.returncode != 0:
            raise ServiceError(f"postgresql: its data cannot be made: {_last_line(made.stderr)}")
        unfinished.rename(self._data)


def _choose_url() -> str:
    return f"postgresql://{USER}:{secrets.token_hex(16)}@127.0.0.1:{free_port()}/{DATABASE}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "initdb said nothing"


def _login_request() -> bytes:
    protocol = struct.pack("!i", 3 << 16)
    names = b"".join(word.encode() + b"\0" for word in ("user", USER, "database", DATABASE, ""))
    return struct.pack("!i", 4 + len(protocol) + len(names)) + protocol + names

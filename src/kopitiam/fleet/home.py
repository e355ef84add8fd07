"""Files of a fleet below its home folder, and the process record of each node, from which any later command
finds the process again.

Each machine has its own home. If machines share one nevertheless, each uses only its own process records and
scratch folders: a process id means nothing on another machine.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.layout import Home
from kopitiam.contracts.messages import NodeKind, NodeRecord
from kopitiam.system.files import replace_file

_SAME_SECONDS = 2.0  # a stepped clock shifts the reported start of a process


@dataclass(frozen=True)
class FleetHome:
    """The home folder as this machine, `host`, uses it."""

    path: Path
    host: str = ""  # empty in records of earlier versions, which knew one machine only

    @classmethod
    def of(cls, settings: Settings) -> "FleetHome":
        return cls(settings.home, settings.host)

    def make(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for folder in (self.path, self.nodes, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be used as home: {error.strerror}") from None

    @property
    def nodes(self) -> Path:
        return self.path / "nodes"

    def record(self, name: str) -> Path:
        return self.nodes / f"{name}.json"

    def lock(self, name: str) -> Path:
        return self.nodes / f"{name}.lock"

    def joined_mark(self, name: str) -> Path:
        """A file with the id of the process that has become this node of the fleet: its settings are right,
        and registry, bus and storage are those of the fleet."""
        return self.nodes / f"{name}.joined"

    def has_joined(self, name: str, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return self.joined_mark(name).read_text(encoding="utf-8") == str(pid)
        return False

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def service(self, name: str) -> Path:
        return self.path / "services" / name

    def scratch(self, name: str) -> Path:
        return self.path / "scratch" / name

    def process_scratch(self, name: str, pid: int) -> Path:
        """Scratch folder of one process of the node."""
        return self.scratch(name) / f"{self._prefix}{pid}"

    def pid_of_scratch(self, folder: Path) -> int | None:
        """The process that made a scratch folder; None if it is one of another machine."""
        pid = folder.name.removeprefix(self._prefix)
        return int(pid) if pid.isdecimal() else None

    def ready_mark(self, name: str, pid: int) -> Path:
        """A file that a pipeline creates once Spark is up; its heartbeats start long before."""
        return self.process_scratch(name, pid) / "ready"

    @property
    def _prefix(self) -> str:
        return f"{self.host.replace(':', '.')}-" if self.host else ""

    def temporary(self, name: str) -> tuple[Path, ...]:
        """Folders to delete when the node has ended; a killed node leaves them behind."""
        return self.scratch(name), Home(self.path).incoming / name, self.service(name) / "scratch"


@dataclass(frozen=True)
class ProcessRecord:
    name: str
    kind: NodeKind
    pid: int
    created: float  # start of the process, to detect a reused pid
    command: tuple[str, ...]
    started_at: float
    host: str = ""

    def is_process_of(self, node: NodeRecord) -> bool:
        """Whether the registry's record of the node is about this process, and not an earlier one, or one of
        another machine."""
        return self.pid == node.pid and node.host in (None, self.host)  # None: an earlier version

    def process(self) -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.created) <= _SAME_SECONDS:
                return process
        return None


def read_record(home: FleetHome, name: str) -> ProcessRecord | None:
    """The record of a process on this machine; None if there is none, or it cannot be read."""
    try:
        fields = json.loads(home.record(name).read_text(encoding="utf-8"))
        record = ProcessRecord(**fields | {"command": tuple(fields["command"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    is_here = not (record.host and home.host) or record.host == home.host
    return record if is_here else None


def write_record(
    home: FleetHome, name: str, kind: NodeKind, pid: int, command: Sequence[str]
) -> ProcessRecord:
    created = psutil.Process(pid).create_time()
    record = ProcessRecord(name, kind, pid, created, tuple(command), time.time(), home.host)
    replace_file(home.record(name), json.dumps(asdict(record), indent=2).encode(), mode=0o600)
    return record


def recorded_names(home: FleetHome) -> list[str]:
    return sorted(path.stem for path in home.nodes.glob("*.json"))

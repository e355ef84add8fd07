"""Files of a fleet below its home folder, and the process record of each node, from which any later command
finds the process again.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.layout import Home
from kopitiam.contracts.messages import NodeKind
from kopitiam.system.files import replace_file

_SAME_SECONDS = 2.0  # a stepped clock shifts the reported start of a process


@dataclass(frozen=True)
class FleetHome:
    path: Path

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

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def service(self, name: str) -> Path:
        return self.path / "services" / name

    def scratch(self, name: str) -> Path:
        return self.path / "scratch" / name

    def temporary(self, name: str) -> tuple[Path, ...]:
        """Folders to delete when the node has ended; a killed node leaves them behind."""
        return self.scratch(name), Home(self.path).incoming / name, self.service(name) / "scratch"


def ready_mark(home: Path, name: str, pid: int) -> Path:
    """A file that a pipeline creates once Spark is up; its heartbeats start long before."""
    return FleetHome(home).scratch(name) / str(pid) / "ready"


@dataclass(frozen=True)
class ProcessRecord:
    name: str
    kind: NodeKind
    pid: int
    created: float  # start of the process, to detect a reused pid
    command: tuple[str, ...]
    started_at: float

    def process(self) -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.created) <= _SAME_SECONDS:
                return process
        return None


def read_record(home: FleetHome, name: str) -> ProcessRecord | None:
    try:
        fields = json.loads(home.record(name).read_text(encoding="utf-8"))
        return ProcessRecord(**fields | {"command": tuple(fields["command"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # an unreadable record counts as none
        return None


def write_record(
    home: FleetHome, name: str, kind: NodeKind, pid: int, command: Sequence[str]
) -> ProcessRecord:
    created = psutil.Process(pid).create_time()
    record = ProcessRecord(name, kind, pid, created, tuple(command), time.time())
    replace_file(home.record(name), json.dumps(asdict(record), indent=2).encode(), mode=0o600)
    return record


def recorded_names(home: FleetHome) -> list[str]:
    return sorted(path.stem for path in home.nodes.glob("*.json"))

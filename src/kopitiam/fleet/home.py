"""Where a fleet keeps what it knows of its processes, below the home folder."""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.layout import Home
from kopitiam.contracts.messages import NodeKind


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
        """What nobody needs when the node is gone: one that was killed leaves it behind."""
        return self.scratch(name), Home(self.path).incoming / name, self.service(name) / "scratch"


_SAME_SECONDS = 2.0  # a stepped clock shifts what the system says of when a process began


def ready_mark(home: Path, name: str, pid: int) -> Path:
    """A pipeline makes it in its scratch folder when it has Spark; that it lives, it says long before."""
    return FleetHome(home).scratch(name) / str(pid) / "ready"


@dataclass(frozen=True)
class ProcessRecord:
    name: str
    kind: NodeKind
    pid: int
    created: float  # when the process began: a number that went to another process is not taken for ours
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
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # one that cannot be read is as good as none
        return None


def write_record(
    home: FleetHome, name: str, kind: NodeKind, pid: int, command: Sequence[str]
) -> ProcessRecord:
    created = psutil.Process(pid).create_time()
    record = ProcessRecord(name, kind, pid, created, tuple(command), time.time())
    write_atomically(home.record(name), json.dumps(asdict(record), indent=2))
    return record


def recorded_names(home: FleetHome) -> list[str]:
    return sorted(path.stem for path in home.nodes.glob("*.json"))


def write_atomically(path: Path, text: str) -> None:
    """All of it or nothing, and nobody else's to read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(temporary).replace(path)

"""What is written down of a node's process, so that any later command finds it again."""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from kopitiam.contracts.messages import NodeKind
from kopitiam.fleet.home import FleetHome

_SAME_SECONDS = 2.0  # a stepped clock shifts what the system says of when a process began


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
    write_whole(home.record(name), json.dumps(asdict(record), indent=2))
    return record


def recorded_names(home: FleetHome) -> list[str]:
    return sorted(path.stem for path in home.nodes.glob("*.json"))


def write_whole(path: Path, text: str) -> None:
    """All of it or nothing, and nobody else's to read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(temporary).replace(path)

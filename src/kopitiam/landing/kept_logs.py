"""What Spark said in lives that ended badly: the latest few logs, each cut to its end, below `logs` in the
home.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kopitiam.landing.privacy import make_private_folder

MOST_BYTES = 16 << 20
MOST_FILES = 5  # of one name
SPARK_LOG = "spark.log"
_KEPT = re.compile(r"spark-.+-\d{8}T\d{6}\.\d{6}Z\.log")


@dataclass(frozen=True)
class KeptLogs:
    """Of one node, or of `serve` or `analyze`."""

    folder: Path
    name: str

    def keep(self, scratch: Path) -> Path | None:
        """Moves the log in this scratch folder, with its older generation, to where it stays; both are for
        their owner alone. Returns the file; None if there is no log, or no room for it."""
        parts = [log for log in (scratch / f"{SPARK_LOG}.1", scratch / SPARK_LOG) if log.exists()]
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        kept = self.folder / f"spark-{self.name}-{at}.log"
        try:
            if not sum(part.stat().st_size for part in parts):
                return None
            make_private_folder(self.folder)
            with open(kept, "xb", opener=_for_the_owner) as file:
                file.write(_end_of(parts, MOST_BYTES))
            for part in parts:
                part.unlink(missing_ok=True)
        except OSError:  # it would be kept if it could
            return None
        self._forget_the_oldest()
        return kept

    def _forget_the_oldest(self) -> None:
        for old in sorted(self.folder.glob(f"spark-{self.name}-[0-9]*Z.log"))[:-MOST_FILES]:
            with contextlib.suppress(OSError):
                old.unlink()


def is_kept(log: Path) -> bool:
    """Whether the file is one that `KeptLogs` keeps: no process writes to it any more."""
    return _KEPT.fullmatch(log.name) is not None


def _end_of(files: Sequence[Path], most_bytes: int) -> bytes:
    """The last bytes of these files, put one after the other."""
    end = b""
    for path in reversed(files):
        with path.open("rb") as file:
            left = most_bytes - len(end)
            file.seek(max(0, path.stat().st_size - left))
            end = file.read(left) + end
    return end


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""What Spark said in lives that ended badly: the latest few logs, each cut to its end, below `logs` in the
home.
"""

import contextlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

MOST_BYTES = 16 << 20
MOST_FILES = 5  # of one name
SPARK_LOG = "spark.log"


@dataclass(frozen=True)
class KeptLogs:
    """Of one node, or of `serve` or `analyze`."""

    folder: Path
    name: str

    def keep(self, scratch: Path) -> Path | None:
        """The log in this scratch folder, moved to where it stays; None if there is none, or no room."""
        log = scratch / SPARK_LOG
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        kept = self.folder / f"spark-{self.name}-{at}.log"
        try:
            if not log.stat().st_size:
                return None
            self.folder.mkdir(parents=True, exist_ok=True)
            with log.open("rb") as said, open(kept, "xb", opener=_for_the_owner) as file:
                said.seek(max(0, log.stat().st_size - MOST_BYTES))
                file.write(said.read(MOST_BYTES))
            log.unlink(missing_ok=True)
        except OSError:  # it would be kept if it could
            return None
        self._forget_the_oldest()
        return kept

    def _forget_the_oldest(self) -> None:
        for old in sorted(self.folder.glob(f"spark-{self.name}-[0-9]*Z.log"))[:-MOST_FILES]:
            with contextlib.suppress(OSError):
                old.unlink()


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""Where a fleet keeps what it knows of its processes, below the home folder."""

from dataclasses import dataclass
from pathlib import Path

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.layout import Home


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

"""Where the registry is. Spark's processes beside the driver load this module, and most of them never ask the
registry anything: it imports what a registry is made of when it is opened, which is most of their start.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kopitiam.registry.port import RegistryPort


@dataclass(frozen=True)
class RegistryAddress:
    url: str
    home: Path

    def __call__(self) -> "RegistryPort":
        from kopitiam.registry.registry import connect_registry  # noqa: PLC0415

        return connect_registry(self.url, self.home)

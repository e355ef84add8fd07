"""The address of the registry, for the Python processes that Spark starts beside its driver.

Most of them never use the registry: this module imports it when it is opened, since that import is most of
their start.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry


@dataclass(frozen=True)
class RegistryAddress:
    """Opens another connection to the same registry when called."""

    url: str
    home: Path

    def __call__(self) -> "Registry":
        from kopitiam.registry.registry import connect_registry  # noqa: PLC0415

        return connect_registry(self.url, self.home)

"""What every service of a fleet can do. A new one is a module here and a line in `__init__`."""

from typing import Protocol

import psutil

from kopitiam.contracts.config import Settings


class Service(Protocol):
    """A server that the fleet brings along: private, on the loopback interface, in a folder of its own."""

    name: str

    def start(self) -> bool:
        """Returns when it answers, on the same port, data and credentials as ever. False if it ran."""

    def stop(self) -> bool:
        """Leaves no process; data, address and log stay. False if there was nothing to stop."""

    def probe(self) -> bool:
        """Whether it answers in its own protocol, within two seconds."""

    def url(self) -> str | None:
        """Where clients find it, credentials included; None before its first start."""

    def fill(self, settings: Settings) -> Settings:
        """The settings with its address, if they keep the default there."""

    def family(self) -> list[psutil.Process]:
        """All processes that it consists of."""

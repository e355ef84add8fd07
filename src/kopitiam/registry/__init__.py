"""What is known about runs, kept in SQL: SQLite beside the data, or PostgreSQL for a cluster."""

from kopitiam.registry.port import RegistryPort
from kopitiam.registry.records import Ended, Fence, Lease, Opened, Published, Registered, RunAccount
from kopitiam.registry.registry import Registry, open_registry

__all__ = [
    "Ended",
    "Fence",
    "Lease",
    "Opened",
    "Published",
    "Registered",
    "Registry",
    "RegistryPort",
    "RunAccount",
    "open_registry",
]

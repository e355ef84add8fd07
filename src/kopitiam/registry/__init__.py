"""The registry: the state of runs and nodes in SQL, in SQLite beside the data or PostgreSQL for a cluster."""

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
    "RunAccount",
    "open_registry",
]

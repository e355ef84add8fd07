"""What is known about runs, kept in SQL: SQLite beside the data, or PostgreSQL for a cluster."""

from kopitiam.registry.port import Ended, Fence, Opened, Published, Registered, RegistryPort
from kopitiam.registry.registry import Registry, open_registry

__all__ = ["Ended", "Fence", "Opened", "Published", "Registered", "Registry", "RegistryPort", "open_registry"]

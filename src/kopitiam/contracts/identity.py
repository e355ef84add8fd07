"""Who a registry is, and how far it has come. Home and storage carry the same, to know their registry by."""

from dataclasses import dataclass

MARK_FILE = "registry.json"  # at the root of home and of storage


@dataclass(frozen=True)
class Identity:
    id: str
    mark: int  # grows at every start of a gateway or pipeline, and while gateways run
    is_used: bool = True  # False: made just now, it knows of no run and of no node

"""Kopitiam: exact answers about a coffee chain's sales."""

import os
import sys
from typing import TYPE_CHECKING

if sys.platform == "linux":  # where Arrow carries it; its other allocator keeps 80 MB more of what was freed
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")

if TYPE_CHECKING:
    from kopitiam.client.client import Client as Client

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """The client is loaded when it is asked for, so that importing the package stays cheap."""
    if name == "Client":
        from kopitiam.client.client import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

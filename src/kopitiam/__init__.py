"""Kopitiam: exact answers about a coffee chain's sales."""

import os
import sys
from typing import TYPE_CHECKING

if sys.platform == "linux":  # Arrow has it on Linux; its default allocator retains 80 MB more of freed memory
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")

if TYPE_CHECKING:
    from kopitiam.client.client import Client as Client

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load `Client` on first use, so that importing the package stays fast."""
    if name == "Client":
        from kopitiam.client.client import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

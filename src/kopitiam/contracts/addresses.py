"""Names and addresses of machines: checks, and how URLs spell them."""

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

HOST_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.(?!-)[a-z0-9-]{1,63})*")
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - an address that is read, not listened on


def check_host(host: str) -> str:
    """Check the name or address of a machine, and return it in lower case."""
    if not (is_address(host) or HOST_NAME.fullmatch(host.lower().rstrip("."))):
        raise ValueError(
            f"{host!r}: expected the name or address of a machine, such as h1.example or 10.0.0.5"
        )
    return host.lower().rstrip(".")


HostName = Annotated[str, AfterValidator(check_host)]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """The host as URLs spell it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def reachable(host: str) -> str:
    """Replace the wildcard address, which cannot be called, by the loopback address."""
    return WILDCARDS.get(host, host)

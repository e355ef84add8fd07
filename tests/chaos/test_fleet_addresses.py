"""Unreachable addresses and wrong passwords: a node exits with an error of one line."""

from urllib.parse import urlsplit

import pytest
from fleets import Fleet

from kopitiam.bus.private_broker import free_port

PATIENCE_SECONDS = 120  # on a loaded machine; otherwise a node exits within a few
UNREACHABLE = 3


def with_an_unused_port(url: str) -> str:
    """The same URL with an unused port."""
    return url.replace(f":{urlsplit(url).port}", f":{free_port()}")


def with_a_wrong_password(url: str) -> str:
    return url.replace(f":{urlsplit(url).password}@", ":wrong@")


@pytest.mark.parametrize("change", [with_an_unused_port, with_a_wrong_password])
@pytest.mark.parametrize("part", ["bus", "registry"])
@pytest.mark.long
def test_a_node_without_bus_or_registry_exits_with_one_line(fleet: Fleet, part: str, change) -> None:
    url = change(getattr(fleet.settings, part).url)
    arguments = ("gateway", "--name", "gateway-1", "--config", str(fleet.config))
    node = fleet.start_command(*arguments, **{f"KOPI_{part.upper()}__URL": url})
    _, complaint = node.communicate(timeout=PATIENCE_SECONDS)
    assert node.returncode == UNREACHABLE, complaint
    assert len(complaint.strip().splitlines()) == 1, complaint
    assert complaint.startswith("kopi: ")
    assert "wrong" not in complaint.replace("wrong password", ""), "a password was shown"

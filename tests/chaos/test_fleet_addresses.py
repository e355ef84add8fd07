"""Addresses that lead nowhere and passwords that are wrong: one line, soon, and no node hangs."""

import time
from urllib.parse import urlsplit

import pytest
from fleets import Fleet

from kopitiam.bus.private_broker import free_port

SOON_SECONDS = 30
UNREACHABLE = 3


def elsewhere(url: str) -> str:
    """The same with a port that nobody has."""
    return url.replace(f":{urlsplit(url).port}", f":{free_port()}")


def with_a_wrong_password(url: str) -> str:
    return url.replace(f":{urlsplit(url).password}@", ":wrong@")


@pytest.mark.parametrize("change", [elsewhere, with_a_wrong_password])
@pytest.mark.parametrize("part", ["bus", "registry"])
def test_a_node_that_cannot_reach_what_it_needs_says_so_in_one_line(fleet: Fleet, part: str, change) -> None:
    url = change(getattr(fleet.settings, part).url)
    begun = time.monotonic()
    words = ("gateway", "--name", "gateway-1", "--config", str(fleet.config))
    node = fleet.start_command(*words, **{f"KOPI_{part.upper()}__URL": url})
    _, complaint = node.communicate(timeout=2 * SOON_SECONDS)
    assert time.monotonic() - begun < SOON_SECONDS
    assert node.returncode == UNREACHABLE, complaint
    assert len(complaint.strip().splitlines()) == 1, complaint
    assert complaint.startswith("kopi: ")
    assert "wrong" not in complaint.replace("wrong password", ""), "a password was shown"

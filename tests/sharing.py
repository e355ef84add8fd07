"""Assigns tests to workers: by module, or all modules that share a Spark session, a service or a fleet."""

from pathlib import PurePosixPath

import pytest
from xdist.scheduler import LoadScopeScheduling

_SHARE = {"browser", "hosts", "spark"}
_FLEET = "the fleet"
_CHAOS = "chaos/test_kopi_chaos.py"


class ByWhatIsShared(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _shared_by(nodeid)


def longest_first(items: list[pytest.Item]) -> None:
    """The fleet takes longest, and waits more than it works. The other worker has the cores meanwhile, for
    the tests of Spark. `kopi chaos` comes first in the fleet: another module ends with a stopped fleet."""
    order = [_FLEET, "spark"]

    def rank(item: pytest.Item) -> tuple[int, bool]:
        shared = _shared_by(item.nodeid)
        return order.index(shared) if shared in order else len(order), _CHAOS not in item.nodeid

    items.sort(key=rank)


def _shared_by(nodeid: str) -> str:
    file = PurePosixPath(nodeid.partition("::")[0])
    folder = file.parent.name
    if folder == "chaos" and file.name.startswith(("test_fleet_", "test_kopi_chaos")):
        return _FLEET
    return folder if folder in _SHARE else str(file)

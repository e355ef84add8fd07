"""Which tests go to one worker: a module, or all modules that share a Spark session, a service or a fleet."""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

_SHARE = {"browser", "spark"}


class ByWhatIsShared(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        folder = file.parent.name
        is_of_the_fleet = folder == "chaos" and file.name.startswith("test_fleet_")
        return folder if folder in _SHARE or is_of_the_fleet else str(file)

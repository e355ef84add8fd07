"""The nodes of a fleet, whatever they are: started and ended alike."""

from dataclasses import dataclass
from pathlib import Path

from kopitiam.contracts.config import DEFAULT_FILE, Settings, load_settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.messages import NodeKind
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.processes import Launched, launch, stop
from kopitiam.fleet.programs import node_program
from kopitiam.fleet.records import read_record, recorded_names
from kopitiam.fleet.services import find_service
from kopitiam.system.files import keep_private

FIRST_MOMENTS = 4.0  # what is wrong with a setting or a port shows by then


@dataclass(frozen=True)
class Fleet:
    """The nodes of one settings file on this machine."""

    settings: Settings
    config: Path | None = None

    @property
    def home(self) -> FleetHome:
        return FleetHome(self.settings.home)

    @property
    def kinds(self) -> dict[str, NodeKind]:
        """By name; also those that run although the settings do not name them any more."""
        known = self.settings.nodes.kinds
        records = (read_record(self.home, name) for name in recorded_names(self.home) if name not in known)
        return {**known, **{record.name: record.kind for record in records if record}}


def open_fleet(config: Path | None) -> Fleet:
    """Nodes are told the file by its full name, since they may be started again from anywhere."""
    if config is None and DEFAULT_FILE.is_file():
        config = DEFAULT_FILE
    return Fleet(load_settings(config), config.absolute() if config else None)


def start_node(fleet: Fleet, name: str) -> bool:
    """Returns when it has lived through its first moments, a service when it answers. False if it ran."""
    kind = require_kind(fleet, name)
    keep_private(fleet.settings.home, fleet.settings.umask)
    fleet.home.make()
    if kind == "service":
        return find_service(name, fleet.settings).start()
    launched = launch_node(fleet, name)
    launched.settle(FIRST_MOMENTS)
    return launched.child is not None


def launch_node(fleet: Fleet, name: str) -> Launched:
    return launch(fleet.home, node_program(fleet.settings, fleet.config, name))


def end_node(fleet: Fleet, name: str) -> bool:
    """False if there was nothing to end."""
    if fleet.kinds.get(name) == "service":
        return find_service(name, fleet.settings).stop()
    return stop(fleet.home, name)


def joining_pipelines(fleet: Fleet) -> list[str]:
    """Pipelines that come to others. One that was killed or frozen has cores, and takes them over."""
    pipelines = fleet.settings.nodes.pipelines
    joining = [name for name in pipelines if read_record(fleet.home, name) is None]
    return joining if len(joining) < len(pipelines) else []


def require_kind(fleet: Fleet, name: str) -> NodeKind:
    if name not in fleet.kinds:
        raise ConfigError(f"{name}: there is no such node; there are {', '.join(fleet.kinds)}")
    return fleet.kinds[name]

"""A monitor node of a fleet, and the roster of nodes and services that it watches."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from kopitiam.contracts.config import NodesSection, Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.home import FleetHome, read_record
from kopitiam.fleet.services import find_service, recorded_probes, service_settings
from kopitiam.fleet.services.base import without_credentials
from kopitiam.runtime.member import member
from kopitiam.supervision.leadership import MonitorContext
from kopitiam.supervision.monitor import Monitor
from kopitiam.supervision.reviver import Reviver
from kopitiam.supervision.service_watch import ServiceLocation, ServiceWatch
from kopitiam.system.files import keep_private
from kopitiam.system.settings import load_settings
from kopitiam.system.threads import run_threads

_log = logging.getLogger(__name__)


class Roster:
    """The nodes and services of a fleet. They may be added and removed while it runs: the settings file is
    read again when it has changed."""

    def __init__(self, config: Path | None, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._version = self._file_version()

    def nodes(self) -> NodesSection:
        return self.settings.nodes

    def probes(self) -> Mapping[str, Callable[[], bool]]:
        return recorded_probes(self.settings)

    def host_of(self, name: str) -> str:
        return self.settings.host_of(name)

    def service_location(self, name: str) -> ServiceLocation | None:
        return service_location(self.settings, name)

    @property
    def settings(self) -> Settings:
        """The current settings. An invalid file changes nothing, and is logged once."""
        version = self._file_version()
        if self._config is not None and version != self._version:
            self._version = version
            try:
                settings = load_settings(self._config)
                recorded_probes(settings)
            except ConfigError as error:
                _log.warning("the fleet stays as it is: %s", error)
            else:
                self._settings = settings
        return self._settings

    def _file_version(self) -> tuple[int, int] | None:
        try:
            status = self._config.stat() if self._config else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size) if status else None


def run_monitor(settings: Settings, name: str, config: Path | None) -> None:
    """Runs until the node fails, and raises the reason. `config` is read again when it changes."""
    keep_private(settings.home, settings.umask)
    settings = service_settings(settings)
    with member(settings, name, "monitor") as node:
        fence, pace = node.membership.fence, settings.monitor
        roster = Roster(config, settings)

        def on_revived(name: str, failure: str | None) -> None:
            monitor.on_revived(name, failure)

        reviver = Reviver(pace.revive, config, on_revived, roster.host_of)
        below = len(settings.nodes.monitors) - settings.nodes.monitors.index(name) - 1
        services = ServiceWatch(
            roster.probes,
            roster.service_location,
            reviver.revive,
            node.registry.nodes,
            every_seconds=pace.heartbeat_seconds,
            patience_seconds=below * 3 * pace.heartbeat_seconds,
            revive_limit=pace.revive_limit,
        )
        monitor = Monitor(
            MonitorContext(fence, roster.nodes, pace, node.registry, node.bus, reviver.revive, services)
        )
        with run_threads(monitor.run, stop=[monitor.stop, reviver.close], failure=node.failure):
            node.membership.start(failure_reason=monitor.failure_reason)
            node.failure.result()


def service_location(settings: Settings, name: str) -> ServiceLocation | None:
    """Process and address of a service, as `kopi cluster status` shows them; None if it is one of this
    machine and was stopped: then it has no record and does not answer."""
    service, record = find_service(name, settings), read_record(FleetHome.of(settings), name)
    if record is None and settings.is_here(name) and not service.probe():
        return None
    pid, url = record.pid if record else None, service.url()
    return ServiceLocation(pid, without_credentials(url) if url else None, settings.host_of(name))

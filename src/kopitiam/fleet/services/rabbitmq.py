"""The fleet's own RabbitMQ: a `PrivateBroker` with a process record, as a service of the fleet."""

import signal

import psutil

from kopitiam.bus.private_broker import PrivateBroker, takes_connections
from kopitiam.contracts.config import BusSection, Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.fleet.home import read_record, write_record
from kopitiam.fleet.processes import (
    Launched,
    kill_all,
    process_state,
    processes_with_variable,
    stop_with,
    terminate,
)
from kopitiam.fleet.services.base import Site, address_of, write_url
from kopitiam.system.files import locked

START_SECONDS = 120.0  # on a loaded machine
STOP_SECONDS = 20.0


class RabbitMQ:
    name = "rabbitmq"

    def __init__(self, settings: Settings) -> None:
        self._site = Site.of(settings, self.name)
        self._home, self._folder = self._site.home, self._site.folder

    def start(self) -> bool:
        with locked(self._home.lock(self.name)):
            broker = self._broker()
            was_running = process_state(self._process(broker)) == "running"
            if not was_running:
                kill_all(self.name, self.processes)  # a frozen broker, or the remains of a killed one
                broker.start()
            launched = self._record(broker)
        launched.wait_until_ready(self.probe, START_SECONDS)
        return not was_running

    def stop(self) -> bool:
        def end() -> None:
            terminate(self._process(self._broker()), signal.SIGTERM, STOP_SECONDS)
            kill_all(self.name, self.processes)
            for path in (*self._folder.glob("*.pid"), self._folder / "lock"):
                path.unlink(missing_ok=True)

        return stop_with(self._home, self.name, self.processes, end)

    def probe(self) -> bool:
        url = self.url()
        return url is not None and takes_connections(*address_of(url))

    def url(self) -> str | None:
        return self._site.url(self._broker().url_at)

    def with_address(self, settings: Settings) -> Settings:
        if settings.bus.url != "memory":
            return settings
        url = self._site.require_url(self._broker().url_at)
        return settings.model_copy(update={"bus": BusSection(url=url)})

    def processes(self) -> list[psutil.Process]:
        """The broker with its helpers and its epmd: all have this HOME."""
        return processes_with_variable("HOME", str(self._folder))

    def _broker(self) -> PrivateBroker:
        site = self._site
        return PrivateBroker(
            self._folder, site.port, password=site.password, listen=site.listen, host=site.host
        )

    def _record(self, broker: PrivateBroker) -> Launched:
        pid = broker.pid
        if pid is None:
            raise ServiceError(f"{self.name}: it ended right after its start")
        write_url(self._folder, broker.url)
        known = read_record(self._home, self.name)
        if known is None or known.pid != pid or known.process() is None:
            write_record(self._home, self.name, "service", pid, psutil.Process(pid).cmdline())
        return Launched(self.name, pid, None, self._folder / "log" / "broker.out", 0)

    def _process(self, broker: PrivateBroker) -> psutil.Process | None:
        return psutil.Process(broker.pid) if broker.pid is not None else None

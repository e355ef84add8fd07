"""A chaos run: clients, strikes and an observer against a running fleet."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kopitiam.client.http import Transport
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.fleet.cluster import local_url
from kopitiam.fleet.lifecycle import Fleet
from kopitiam.fleet.services import service_settings
from kopitiam.fleet.status import NodeStatus, fleet_status
from kopitiam.registry.registry import connect_registry
from kopitiam_chaos.clients import ClientPool, DataFolder, SubmittingClient
from kopitiam_chaos.observer import RegistryObserver
from kopitiam_chaos.plan import Groups, Pace, Strike, StrikeLimits, plan
from kopitiam_chaos.report import ChaosReport, RunOutcome, StrikeRecord
from kopitiam_chaos.strikes import StrikeRunner, Victims

PATIENCE_SECONDS = 300.0
_SEEDS_APART = 1000


@dataclass(frozen=True)
class ChaosOptions:
    """The options of a chaos run. `patience_seconds` is the limit for a victim's recovery and a client's
    end."""

    seed: int
    kills: int
    is_freezing: bool
    groups: Groups
    clients: int
    scale: float
    patience_seconds: float = PATIENCE_SECONDS


@dataclass(frozen=True)
class Listeners:
    """Callbacks for the display of progress."""

    on_step: Callable[[str], None] = lambda _: None
    on_strike: Callable[[StrikeRecord], None] = lambda _: None
    on_outcome: Callable[[RunOutcome], None] = lambda _: None


def planned_strikes(fleet: Fleet, options: ChaosOptions) -> tuple[Strike, ...]:
    pace = Pace.of(fleet.settings.monitor.timeout_seconds)
    return plan(options.seed, options.kills, options.groups, pace, is_freezing=options.is_freezing)


def require_running(fleet: Fleet) -> list[str]:
    """The addresses of the gateways. Raises `ServiceError` unless every node is alive."""
    nodes = fleet_status(fleet)
    if absent := [f"{node.name} is {node.state}" for node in nodes if node.state != "alive"]:
        raise ServiceError(f"the fleet is not up: {', '.join(absent)}; bring it up with: kopi cluster up")
    return [_reachable(fleet, node) for node in nodes if node.kind == "gateway" and node.url]


def run_chaos(fleet: Fleet, options: ChaosOptions, listeners: Listeners) -> ChaosReport:
    """Strike the fleet while clients submit. However it ends, the clients stop, no node stays frozen, and the
    fleet keeps running."""
    gateways = require_running(fleet)
    settings = service_settings(fleet.settings)
    strikes = planned_strikes(fleet, options)
    begun = time.monotonic()
    with (
        temporary_folder_for_all() as folder,
        _client_pool(settings, gateways, options, folder, listeners) as pool,
        RegistryObserver(settings) as observer,
    ):
        runner = StrikeRunner(
            victims=Victims(fleet),
            observer=observer,
            bounds=StrikeLimits(settings.nodes.kinds, settings.monitor.revive_limit),
            patience_seconds=options.patience_seconds,
            settle_seconds=2 * settings.monitor.heartbeat_seconds,
            on_change=listeners.on_strike,
        )
        pool.start()
        is_whole = runner.run_strikes(strikes)
        listeners.on_step("waiting for the clients to finish")
        pool.finish(options.patience_seconds)
        return ChaosReport(
            seed=options.seed,
            seconds=time.monotonic() - begun,
            planned=len(strikes),
            records=tuple(runner.records),
            is_whole=is_whole,
            runs=tuple(pool.outcomes),
            clients=options.clients,
            clients_ended=pool.ended,
            leaders_by_epoch=observer.leaders_by_epoch(),
            actions_by_epoch=observer.actions_by_epoch(),
            violations=tuple(observer.violations()),
        )


@contextlib.contextmanager
def temporary_folder_for_all() -> Iterator[Path]:
    """A folder for all temporary files of this process, removed at the end together with the files of clients
    that are still running."""
    with tempfile.TemporaryDirectory(prefix="kopitiam-chaos-", ignore_cleanup_errors=True) as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def _client_pool(
    settings: Settings, gateways: Sequence[str], options: ChaosOptions, folder: Path, listeners: Listeners
) -> Iterator[ClientPool]:
    """Each client has its own data folder; the gateways are assigned in turn."""
    with contextlib.closing(connect_registry(settings.registry.url, settings.home)) as registry:
        clients = []
        for number in range(1, options.clients + 1):
            listeners.on_step(f"making data for client {number} of {options.clients}")
            data = DataFolder.generated(
                folder / str(number), options.scale, options.seed * _SEEDS_APART + number
            )
            transport = _transport(settings, gateways[number % len(gateways)], options.patience_seconds)
            clients.append(
                SubmittingClient(
                    number, data, transport, registry, options.patience_seconds, listeners.on_outcome
                )
            )
        pool = ClientPool(clients)
        try:
            yield pool
        finally:
            pool.abort()


def _transport(settings: Settings, url: str, patience_seconds: float) -> Transport:
    gateway = settings.gateway
    secrets = [*gateway.tokens.values(), gateway.admin_token]
    token = next((secret.get_secret_value() for secret in secrets if secret.get_secret_value()), None)
    return Transport(
        url, token, patience_seconds=patience_seconds, verify=gateway.tls_cert if gateway.tls_cert else True
    )


def _reachable(fleet: Fleet, node: NodeStatus) -> str:
    is_here = fleet.settings.is_here(node.name)
    return local_url(fleet.settings, node.name, node.url) if is_here else node.url or ""

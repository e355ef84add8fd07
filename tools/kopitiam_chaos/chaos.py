"""Clients, strikes and a witness brought together against a fleet that runs."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kopitiam.client.http import Transport
from kopitiam.contracts.config import Settings, reachable
from kopitiam.contracts.errors import ServiceError
from kopitiam.fleet.lifecycle import Fleet
from kopitiam.fleet.services import service_settings
from kopitiam.fleet.status import fleet_status
from kopitiam.registry.registry import connect_registry
from kopitiam_chaos.clients import ClientPool, Folder, SubmittingClient
from kopitiam_chaos.observer import RegistryObserver
from kopitiam_chaos.plan import Groups, Pace, Strike, StrikeLimits, plan
from kopitiam_chaos.report import ChaosReport, RunOutcome, StrikeRecord
from kopitiam_chaos.strikes import StrikeRunner, Victims

PATIENCE_SECONDS = 300.0
_SEEDS_APART = 1000


@dataclass(frozen=True)
class ChaosOptions:
    """What is asked for. A victim, and a client at the end, is given `patience_seconds`."""

    seed: int
    kills: int
    is_freezing: bool
    groups: Groups
    clients: int
    scale: float
    patience_seconds: float = PATIENCE_SECONDS


@dataclass(frozen=True)
class Listeners:
    """Who shows what happens, as it happens."""

    on_step: Callable[[str], None] = lambda _: None
    on_strike: Callable[[StrikeRecord], None] = lambda _: None
    on_outcome: Callable[[RunOutcome], None] = lambda _: None


def planned(fleet: Fleet, wanted: ChaosOptions) -> tuple[Strike, ...]:
    pace = Pace.of(fleet.settings.monitor.timeout_seconds)
    return plan(wanted.seed, wanted.kills, wanted.groups, pace, is_freezing=wanted.is_freezing)


def require_running(fleet: Fleet) -> list[str]:
    """The addresses of the gateways of a fleet that is whole."""
    nodes = fleet_status(fleet)
    if absent := [f"{node.name} is {node.state}" for node in nodes if node.state != "alive"]:
        raise ServiceError(f"the fleet is not up: {', '.join(absent)}; bring it up with: kopi cluster up")
    return [_reachable(node.url) for node in nodes if node.kind == "gateway" and node.url]


def run_chaos(fleet: Fleet, wanted: ChaosOptions, listeners: Listeners) -> ChaosReport:
    """Whatever ends it, the clients end too, nobody stays frozen, and the fleet is left running."""
    gateways = require_running(fleet)
    settings = service_settings(fleet.settings)
    strikes = planned(fleet, wanted)
    begun = time.monotonic()
    with (
        temporary_folder_for_all() as folder,
        _client_pool(settings, gateways, wanted, folder, listeners) as pool,
        RegistryObserver(settings) as witness,
    ):
        storm = StrikeRunner(
            victims=Victims(fleet),
            witness=witness,
            bounds=StrikeLimits(settings.nodes.kinds, settings.monitor.revive_limit),
            patience_seconds=wanted.patience_seconds,
            settle_seconds=2 * settings.monitor.heartbeat_seconds,
            on_change=listeners.on_strike,
        )
        pool.start()
        is_whole = storm.run_strikes(strikes)
        listeners.on_step("waiting for the clients to finish")
        pool.finish(wanted.patience_seconds)
        return ChaosReport(
            seed=wanted.seed,
            seconds=time.monotonic() - begun,
            planned=len(strikes),
            records=tuple(storm.records),
            is_whole=is_whole,
            runs=tuple(pool.outcomes),
            clients=wanted.clients,
            clients_ended=pool.ended,
            leaders_by_epoch=witness.leaders_by_epoch(),
            actions_by_epoch=witness.actions_by_epoch(),
            flaws=tuple(witness.flaws()),
        )


@contextlib.contextmanager
def temporary_folder_for_all() -> Iterator[Path]:
    """For all temporary files of this process. It goes at the end, with those of clients that are still at it
    when the others have left."""
    with tempfile.TemporaryDirectory(prefix="kopitiam-chaos-", ignore_cleanup_errors=True) as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def _client_pool(
    settings: Settings, gateways: Sequence[str], wanted: ChaosOptions, folder: Path, listeners: Listeners
) -> Iterator[ClientPool]:
    """A client for each folder, and a gateway for each client."""
    with contextlib.closing(connect_registry(settings.registry.url, settings.home)) as registry:
        clients = []
        for number in range(1, wanted.clients + 1):
            listeners.on_step(f"making data for client {number} of {wanted.clients}")
            data = Folder.generated(folder / str(number), wanted.scale, wanted.seed * _SEEDS_APART + number)
            transport = _transport(settings, gateways[number % len(gateways)], wanted.patience_seconds)
            clients.append(
                SubmittingClient(
                    number, data, transport, registry, wanted.patience_seconds, listeners.on_outcome
                )
            )
        pool = ClientPool(clients)
        try:
            yield pool
        finally:
            pool.leave()


def _transport(settings: Settings, url: str, patience_seconds: float) -> Transport:
    gateway = settings.gateway
    secrets = [*gateway.tokens.values(), gateway.admin_token]
    token = next((secret.get_secret_value() for secret in secrets if secret.get_secret_value()), None)
    return Transport(
        url, token, patience_seconds=patience_seconds, verify=gateway.tls_cert if gateway.tls_cert else True
    )


def _reachable(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return url.replace(host, reachable(host), 1)

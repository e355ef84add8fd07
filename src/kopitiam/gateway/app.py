"""The gateway as an ASGI application."""

import contextlib
import os
import shutil
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI

from kopitiam.bus.outbox import Outbox
from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import Settings
from kopitiam.contracts.layout import Home
from kopitiam.gateway import problems
from kopitiam.gateway.access import Access
from kopitiam.gateway.admission import Admission, Door
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.endings import Endings
from kopitiam.gateway.examiners import Examiners
from kopitiam.gateway.heartbeats import Heartbeats
from kopitiam.gateway.intake import Intake
from kopitiam.gateway.metrics import Metrics
from kopitiam.gateway.pictures import Pictures
from kopitiam.gateway.rates import Rates
from kopitiam.gateway.readiness import Readiness, default_checks
from kopitiam.gateway.routes import about, chunks, fleet, pages, questions, results, rows, runs
from kopitiam.gateway.sound_answers import SoundAnswers
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.storage.open import open_storage
from kopitiam.system.files import make_folder
from kopitiam.system.health import Health

_EXAMINERS = max(2, os.cpu_count() or 1)


def open_gateway(
    fence: Fence, settings: Settings, registry: RegistryPort, bus: BusPort, health: Health | None = None
) -> Gateway:
    """One life of a gateway, with an incoming folder of its own."""
    home, storage, metrics = Home(settings.home), open_storage(settings), Metrics()
    incoming = _own_incoming(home, fence)
    intake = Intake(storage, registry, Examiners(_EXAMINERS), metrics, settings.gateway)
    access, admission = Access(settings.gateway), Admission(settings.gateway)
    heartbeats, endings = Heartbeats(), Endings()
    heartbeats.listen(bus)
    endings.listen(bus)
    return Gateway(
        settings=settings,
        home=home,
        incoming=incoming,
        storage=storage,
        registry=registry,
        bus=bus,
        intake=intake,
        access=access,
        admission=admission,
        rates=Rates(settings.gateway.max_requests_per_second),
        failures=Rates(settings.gateway.max_failures_per_second),
        metrics=metrics,
        readiness=Readiness(default_checks(registry, storage, incoming)),
        heartbeats=heartbeats,
        endings=endings,
        health=health or Health(),
        outbox=Outbox("announcements", lambda _, send: send()),
        sound_answers=SoundAnswers(storage),
        pictures=Pictures(),
    )


def close_gateway(gateway: Gateway) -> None:
    """Another life of the same name may be at work by now: what is its own stays."""
    gateway.outbox.close()
    gateway.intake.examiners.close()
    gateway.pictures.close()
    shutil.rmtree(gateway.incoming, ignore_errors=True)
    with contextlib.suppress(OSError):  # not empty
        gateway.incoming.parent.rmdir()


def _own_incoming(home: Home, fence: Fence) -> Path:
    """What earlier lives left was never acknowledged, and theirs is the place no more, even if one of them
    only stands still; a later life's is not touched."""
    of_name = home.incoming / fence.name
    for left in of_name.glob("*"):
        if not (left.name.isdecimal() and int(left.name) > fence.epoch):
            shutil.rmtree(left, ignore_errors=True)
    incoming = of_name / str(fence.epoch)
    make_folder(incoming)
    return incoming


def build_app(gateway: Gateway) -> Door:
    app = FastAPI(
        title="Kopitiam",
        version=version("kopitiam"),
        description="Exact answers about a coffee chain's sales.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        responses=problems.refusals(400, 401, 403, 404, 421, 422, 429, 503),
    )
    app.state.gateway = gateway
    problems.install(app)
    for routes in (runs, chunks, results, rows, questions, fleet, about, pages):
        app.include_router(routes.router)
    return Door(app, gateway.admission, gateway.settings.gateway)

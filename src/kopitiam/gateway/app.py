"""The gateway as an ASGI application."""

import os
import shutil
from importlib.metadata import version

from fastapi import FastAPI

from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import Settings
from kopitiam.gateway import problems
from kopitiam.gateway.access import Access
from kopitiam.gateway.admission import Admission, Door
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.examiners import Examiners
from kopitiam.gateway.heartbeats import Heartbeats
from kopitiam.gateway.intake import Intake
from kopitiam.gateway.metrics import Metrics
from kopitiam.gateway.routes import about, chunks, fleet, pages, results, rows, runs
from kopitiam.landing.layout import Home
from kopitiam.registry.port import RegistryPort
from kopitiam.storage.files import make_folder
from kopitiam.storage.open import open_storage

_EXAMINERS = max(2, os.cpu_count() or 1)


def open_gateway(name: str, settings: Settings, registry: RegistryPort, bus: BusPort) -> Gateway:
    """Takes up its own incoming folder; what an earlier life left there was never acknowledged."""
    home, storage, metrics = Home(settings.home), open_storage(settings), Metrics()
    shutil.rmtree(home.incoming / name, ignore_errors=True)
    make_folder(home.incoming / name)
    intake = Intake(storage, registry, Examiners(_EXAMINERS), metrics, settings.gateway)
    access, admission = Access(settings.gateway), Admission(settings.gateway.max_bodies)
    heartbeats = Heartbeats()
    heartbeats.listen(bus)
    return Gateway(
        name, settings, home, storage, registry, bus, intake, access, admission, metrics, heartbeats
    )


def close_gateway(gateway: Gateway) -> None:
    gateway.intake.examiners.close()
    shutil.rmtree(gateway.home.incoming / gateway.name, ignore_errors=True)


def build_app(gateway: Gateway) -> Door:
    app = FastAPI(
        title="Kopitiam",
        version=version("kopitiam"),
        description="Exact answers about a coffee chain's sales.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        responses=problems.refusals(400, 401, 404, 422, 503),
    )
    app.state.gateway = gateway
    problems.install(app)
    for routes in (runs, chunks, results, rows, fleet, about, pages):
        app.include_router(routes.router)
    return Door(app, gateway.admission)

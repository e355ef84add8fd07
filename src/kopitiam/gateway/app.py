"""Opens and closes a gateway, and builds its ASGI application with routes and error handlers."""

import contextlib
import logging
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kopitiam.bus.outbox import Outbox
from kopitiam.bus.port import BusPort
from kopitiam.contracts import errors
from kopitiam.contracts.config import Settings
from kopitiam.contracts.layout import Home
from kopitiam.gateway.access import Access
from kopitiam.gateway.admission import Admission, AdmissionMiddleware
from kopitiam.gateway.answer_caches import ChartCache, VerifiedFiles
from kopitiam.gateway.chunk_uploads import ChunkUploads
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.dashboard import pages
from kopitiam.gateway.examination import Examiners
from kopitiam.gateway.listeners import Heartbeats, RunEndWaiters
from kopitiam.gateway.neighbours import Neighbours
from kopitiam.gateway.observability import Metrics, Readiness, default_checks
from kopitiam.gateway.problems import RETRY_SECONDS, Refusal, refusals, storage_error_text, without_paths
from kopitiam.gateway.rates import RateLimit
from kopitiam.gateway.routes import chunks, data, files, fleet, questions, results, rows, runs, sql
from kopitiam.registry.records import Fence
from kopitiam.storage.open import open_storage
from kopitiam.system.files import make_folder
from kopitiam.system.health import Health

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_EXAMINERS = max(2, os.cpu_count() or 1)
_STATUS = {
    errors.RunNotFound: (404, "not_found"),
    errors.RunOver: (410, "over"),
    errors.TableSealed: (409, "sealed"),
    errors.IllegalTransition: (409, "conflict"),
    errors.IdempotencyConflict: (409, "conflict"),
    errors.TooManyRuns: (429, "too_many_runs"),
    errors.TooManyDataSets: (409, "too_many_data_sets"),
    errors.FileConflict: (409, "conflict"),
    errors.FilesIncomplete: (409, "files"),
    errors.VersionConflict: (409, "version"),
    errors.DataSetNotFound: (404, "no_data_set"),
    errors.DataMissing: (422, "data_missing"),
    errors.ConfigError: (422, "invalid"),
    errors.InputError: (422, "invalid"),
    errors.QuestionError: (422, "invalid"),
    errors.Unavailable: (503, "unavailable"),
}
_ERROR_CODES = {
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "idle",
    413: "too_large",
    415: "media_type",
}
_log = logging.getLogger(__name__)


def open_gateway(
    fence: Fence, settings: Settings, registry: "Registry", bus: BusPort, health: Health | None = None
) -> Gateway:
    """Open a gateway under the epoch of `fence`, with an incoming folder of its own."""
    home, storage, metrics = Home(settings.home), open_storage(settings), Metrics()
    incoming = _own_incoming(home, fence)
    uploads = ChunkUploads(storage, registry, Examiners(_EXAMINERS), metrics, settings.gateway)
    access, admission = Access(settings.gateway), Admission(settings.gateway)
    heartbeats, run_ends = Heartbeats(), RunEndWaiters()
    heartbeats.subscribe(bus)
    run_ends.subscribe(bus)
    return Gateway(
        settings=settings,
        home=home,
        incoming=incoming,
        storage=storage,
        registry=registry,
        bus=bus,
        uploads=uploads,
        access=access,
        admission=admission,
        request_rate=RateLimit(settings.gateway.max_requests_per_second),
        failure_rate=RateLimit(settings.gateway.max_failures_per_second),
        metrics=metrics,
        readiness=Readiness(default_checks(registry, storage, incoming)),
        heartbeats=heartbeats,
        run_ends=run_ends,
        health=health or Health(),
        outbox=Outbox("announcements", lambda _, send: send()),
        verified_files=VerifiedFiles(storage),
        charts=ChartCache(),
        neighbours=Neighbours(registry),
    )


def close_gateway(gateway: Gateway) -> None:
    """Stop the gateway's threads and processes, and remove its incoming folder. The folder of a successor
    with the same name stays."""
    gateway.outbox.close()
    gateway.uploads.examiners.close()
    gateway.charts.close()
    shutil.rmtree(gateway.incoming, ignore_errors=True)
    with contextlib.suppress(OSError):  # not empty
        gateway.incoming.parent.rmdir()


def _own_incoming(home: Home, fence: Fence) -> Path:
    """Create the incoming folder of this epoch and remove those of earlier ones: their files were never
    acknowledged, even if an earlier process is only frozen. Folders of later epochs stay."""
    folder_of_node = home.incoming / fence.name
    for folder in folder_of_node.glob("*"):
        if not (folder.name.isdecimal() and int(folder.name) > fence.epoch):
            shutil.rmtree(folder, ignore_errors=True)
    incoming = folder_of_node / str(fence.epoch)
    make_folder(incoming)
    return incoming


def build_app(gateway: Gateway) -> AdmissionMiddleware:
    """Build the ASGI application that serves this gateway."""
    app = FastAPI(
        title="Kopitiam",
        version=version("kopitiam"),
        description="Exact answers about a coffee chain's sales.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        responses=refusals(400, 401, 403, 404, 421, 422, 429, 503),
    )
    app.state.gateway = gateway
    install_error_handlers(app)
    for routes in (runs, chunks, files, data, sql, results, rows, questions, fleet, pages):
        app.include_router(routes.router)
    settings = gateway.settings
    return AdmissionMiddleware(
        app, gateway.admission, settings.gateway, settings.host_names, gateway.neighbours.origins
    )


def install_error_handlers(app: FastAPI) -> None:
    """Make every error leave the application as JSON with an error code and a message, without paths."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        return _problem(refusal.status, refusal.body)

    @app.exception_handler(errors.KopitiamError)
    async def failed(_: Request, error: errors.KopitiamError) -> JSONResponse:
        for kind, (status, code) in _STATUS.items():
            if isinstance(error, kind):
                if status >= 500:
                    _log.error("%s", error)
                newest = {"newest": error.newest} if isinstance(error, errors.VersionConflict) else {}
                return _problem(status, {"error": code, "message": str(error), **newest})
        _log.error("%s", error)
        return _problem(500, {"error": "internal", "message": str(error)})

    @app.exception_handler(OSError)
    async def storage_failed(_: Request, error: OSError) -> JSONResponse:
        _log.error("storage: %s", error)
        return _problem(503, {"error": "unavailable", "message": storage_error_text(error)})

    @app.exception_handler(Exception)
    async def crashed(_: Request, error: Exception) -> JSONResponse:
        del error  # the server logs it; its text may have details that clients must not see
        message = "the gateway failed at this request; its log has the reason"
        return _problem(500, {"error": "internal", "message": message})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        flaw = error.errors()[0]
        where = ".".join(str(part) for part in flaw["loc"])
        # An invalid table or number in the path names a resource that does not exist.
        status = 404 if flaw["loc"][:1] == ("path",) else 422
        code = _ERROR_CODES.get(status, "invalid")
        return _problem(status, {"error": code, "message": f"{where}: {flaw['msg']}"})

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> JSONResponse:
        body = {"error": _ERROR_CODES.get(error.status_code, "refused"), "message": str(error.detail)}
        return JSONResponse(body, error.status_code, headers=error.headers)


def _problem(status: int, body: dict[str, Any]) -> JSONResponse:
    headers = {"Retry-After": str(RETRY_SECONDS)} if status in {429, 503} else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = body | {"message": without_paths(body["message"])}
    return JSONResponse(body, status, headers=headers)

"""Health, figures, and the nodes."""

from dataclasses import asdict

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from kopitiam.contracts.api import Node
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.runs import RunState
from kopitiam.gateway.context import CallerDep, GatewayDep, KnownDep

router = APIRouter(tags=["fleet"])


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """The process is alive."""
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse)
def readyz(gateway: GatewayDep) -> str:
    """Registry and landing can be written to."""
    gateway.registry.check()
    probe = gateway.incoming / "ready"
    try:
        probe.write_bytes(b"ready")
        probe.unlink()
    except OSError as error:
        raise Unavailable(f"landing cannot be written to: {error.strerror}") from None
    if gateway.storage.is_shared:
        gateway.storage.check()
    return "ready\n"


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(gateway: GatewayDep, caller: KnownDep) -> Response:
    """Figures for Prometheus."""
    del caller
    gateway.metrics.open_runs.set(gateway.registry.count_runs(RunState.OPEN))
    gateway.metrics.bodies.set(gateway.admission.bodies)
    return Response(gateway.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/api/v1/nodes")
def nodes(gateway: GatewayDep, caller: CallerDep) -> list[Node]:
    """What runs where."""
    del caller
    return [
        Node(**asdict(node), heard_seconds_ago=gateway.heartbeats.seconds_ago(node.name))
        for node in gateway.registry.nodes()
    ]

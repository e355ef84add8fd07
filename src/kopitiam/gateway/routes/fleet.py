"""Health, figures, and the nodes."""

from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from kopitiam.contracts.api import Node
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.runs import RunState
from kopitiam.gateway.context import CallerDep, GatewayDep, KnownDep, identify
from kopitiam.gateway.problems import Refusal

router = APIRouter(tags=["fleet"])


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """The process is alive."""
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse)
async def readyz(request: Request, gateway: GatewayDep) -> str:
    """200 if registry, storage and the pipeline in this process can be used, as of the last second; else 503.

    Probes have no token. Where callers need one, only those who send one are told the reason.
    """
    reason = gateway.health.reason or await gateway.readiness.reason()
    if reason is not None:
        raise Unavailable(reason if await _may_know(request, gateway) else "not ready")
    return "ready\n"


async def _may_know(request: Request, gateway: GatewayDep) -> bool:
    try:
        await identify(request, gateway)
    except Refusal:
        return False
    return True


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

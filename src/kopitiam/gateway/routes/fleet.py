"""Calls about the fleet: health, metrics, nodes, and the limits that a client needs before it uploads."""

from dataclasses import asdict
from importlib.metadata import version

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from kopitiam.contracts.api import About, Node
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.runs import RunState
from kopitiam.gateway.context import CallerDep, GatewayDep, IdentifiedDep, bearer_token, identify
from kopitiam.gateway.problems import Refusal
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet

router = APIRouter(tags=["fleet"])


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """The process is alive."""
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse)
async def readyz(request: Request, gateway: GatewayDep) -> str:
    """200 if registry, storage and the pipeline in this process can be used, as of the last second; else 503.

    Probes have no token. If the gateway needs tokens, only callers with a valid one see the reason.
    """
    reason = gateway.health.reason or await gateway.readiness.reason()
    if reason is not None:
        raise Unavailable(reason if await _may_know(request, gateway) else "not ready")
    return "ready\n"


async def _may_know(request: Request, gateway: GatewayDep) -> bool:
    try:
        await identify(request, gateway, await bearer_token(request))
    except Refusal:
        return False
    return True


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(gateway: GatewayDep, caller: IdentifiedDep) -> Response:
    """Metrics in Prometheus' text format."""
    del caller
    gateway.metrics.open_runs.set(gateway.registry.count_runs(RunState.OPEN))
    gateway.metrics.bodies.set(gateway.admission.bodies)
    return Response(gateway.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/api/v1/nodes")
def nodes(gateway: GatewayDep, caller: CallerDep) -> list[Node]:
    """The nodes of the fleet: kind, state, address and last heartbeat."""
    del caller
    return [
        Node(**asdict(node), heard_seconds_ago=gateway.heartbeats.seconds_ago(node.name))
        for node in gateway.registry.nodes()
    ]


@router.get("/api/v1/about")
def about(gateway: GatewayDep) -> About:
    """Limits of a chunk, the questions that are asked by default, and whether a token is needed."""
    settings = gateway.settings
    limits = settings.gateway
    tables = QuestionSet.of_catalog().tables
    return About(
        version=version("kopitiam"),
        needs_token=limits.needs_token,
        questions=settings.questions.parameters().to_dict(),
        tables={name: [column.name for column in table.columns] for name, table in tables.items()},
        layout={name: list(table.by_name) for name, table in LAYOUT.items()},
        max_chunk_bytes=limits.max_chunk_bytes,
        max_chunk_rows=limits.max_chunk_rows,
        lease_seconds=limits.lease_seconds,
    )

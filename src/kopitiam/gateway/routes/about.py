"""What a client should know before it begins."""

from importlib.metadata import version

from fastapi import APIRouter

from kopitiam.contracts.api import About
from kopitiam.gateway.context import GatewayDep
from kopitiam.questions.question_set import QuestionSet

router = APIRouter(prefix="/api/v1", tags=["fleet"])


@router.get("/about")
def about(gateway: GatewayDep) -> About:
    """Limits of a chunk, the questions that are asked by default, and whether a token is needed."""
    settings = gateway.settings
    limits = settings.gateway
    tables = QuestionSet.of_catalog().tables
    return About(
        version=version("kopitiam"),
        needs_token=limits.needs_token,
        questions=settings.questions.ask().to_dict(),
        tables={name: [column.name for column in table.columns] for name, table in tables.items()},
        max_chunk_bytes=limits.max_chunk_bytes,
        max_chunk_rows=limits.max_chunk_rows,
        lease_seconds=limits.lease_seconds,
    )

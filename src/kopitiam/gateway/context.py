"""The state that all calls of a gateway share, and their FastAPI dependencies: caller, run, table."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from kopitiam.bus.outbox import Outbox
from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError, RunNotFound, RunOver
from kopitiam.contracts.layout import Home
from kopitiam.contracts.runs import RUN_ID, Run, RunState
from kopitiam.contracts.tables import Table
from kopitiam.gateway.access import ANYBODY, Access, Caller, machine_of
from kopitiam.gateway.admission import Admission
from kopitiam.gateway.answer_caches import ChartCache, VerifiedFiles
from kopitiam.gateway.chunk_uploads import ChunkUploads
from kopitiam.gateway.listeners import Heartbeats, RunEndWaiters
from kopitiam.gateway.neighbours import Neighbours
from kopitiam.gateway.observability import Metrics, Readiness
from kopitiam.gateway.problems import Refusal
from kopitiam.gateway.rates import RateLimit
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.storage.port import StoragePort
from kopitiam.system.health import Health

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_RENEW_BELOW = 0.8  # of the lease: not every call writes to the registry
_MOST_RENEWALS = 10_000  # runs kept; a dropped one is renewed once more than needed


class LeaseRenewals:
    """When this gateway last renewed the lease of each run, by the monotonic clock. The registry's clock
    decides when a lease expires."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._renewed: dict[str, float] = {}  # oldest first

    def is_due(self, run: str, after_seconds: float) -> bool:
        return self._now() - self._renewed.get(run, -math.inf) >= after_seconds

    def record(self, run: str) -> None:
        self._renewed.pop(run, None)
        self._renewed[run] = self._now()
        while len(self._renewed) > _MOST_RENEWALS:
            self._renewed.pop(next(iter(self._renewed)), None)


@dataclass
class Gateway:
    """An open gateway: its settings, ports, limits and caches. It holds no state that a client depends on."""

    settings: Settings
    home: Home
    incoming: FilePath  # bodies that are not accepted yet; each epoch of a gateway has its own folder
    storage: StoragePort
    registry: "Registry"
    bus: BusPort
    uploads: ChunkUploads
    access: Access
    admission: Admission
    request_rate: RateLimit
    failure_rate: RateLimit  # wrong tokens, by address
    metrics: Metrics
    readiness: Readiness
    heartbeats: Heartbeats
    run_ends: RunEndWaiters
    health: Health  # of the pipeline in the same process; always good in a fleet
    outbox: Outbox[str, Callable[[], None]]
    verified_files: VerifiedFiles
    charts: ChartCache
    neighbours: Neighbours
    renewals: LeaseRenewals = field(default_factory=LeaseRenewals)

    def renew_lease(self, run: Run) -> None:
        """Renew the lease of an open run if it is due. Every call shows that the client is alive."""
        lease = self.settings.gateway.lease_seconds
        if run.state is RunState.OPEN and self.renewals.is_due(run.run, (1 - _RENEW_BELOW) * lease):
            with contextlib.suppress(RunOver):  # it may have ended just now
                self.registry.renew_lease(run.run, lease)
                self.renewals.record(run.run)

    @contextlib.asynccontextmanager
    async def keeping_lease(self, run: Run) -> AsyncIterator[None]:
        """Renew the lease of the run inside the block: a body may take long to arrive and to be checked."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self.settings.gateway.lease_seconds / 3)
                with contextlib.suppress(KopitiamError):  # storing the chunk will raise it again
                    current = await run_in_threadpool(self.registry.get_run, run.run)
                    await run_in_threadpool(self.renew_lease, current)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()


def _gateway(request: Request) -> Gateway:
    return cast(Gateway, request.app.state.gateway)


GatewayDep = Annotated[Gateway, Depends(_gateway)]
bearer_token = HTTPBearer(
    auto_error=False,
    description="A token of `gateway.tokens`, or the admin token. A gateway without tokens needs none.",
)
TokenDep = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer_token)]


def _address(request: Request) -> str:
    return machine_of(request.client.host) if request.client else ""


async def identify(request: Request, gateway: GatewayDep, token: TokenDep) -> Caller:
    """Return the caller. Raises Refusal: 401 without a valid token, 429 for an address that guesses tokens.

    While an address guesses too fast, its valid tokens are refused too; otherwise it could go on guessing.
    A web page can make a browser call without a token but not with a wrong one, so only wrong tokens count.
    """
    address = _address(request)
    has_credentials = "authorization" in request.headers and gateway.settings.gateway.needs_token
    if has_credentials:
        gateway.failure_rate.check(address)
    try:
        return gateway.access.caller(token.credentials if token else None)
    except Refusal:
        (gateway.failure_rate if has_credentials else gateway.request_rate).count(address)
        raise


IdentifiedDep = Annotated[Caller, Depends(identify)]


async def _account(request: Request, caller: IdentifiedDep) -> str:
    """Return the name under which limits count a call: the token's owner, or the machine if there are no
    tokens."""
    return _address(request) if caller.owner == ANYBODY else caller.owner


AccountDep = Annotated[str, Depends(_account)]


async def _caller(gateway: GatewayDep, caller: IdentifiedDep, account: AccountDep) -> Caller:
    """Return the caller after counting the call against its rate limit."""
    gateway.request_rate.count(account)
    return caller


CallerDep = Annotated[Caller, Depends(_caller)]


async def _run(
    run: Annotated[str, Path(pattern=f"^{RUN_ID.pattern}$")], gateway: GatewayDep, caller: CallerDep
) -> Run:
    """Return the run of the path, and renew its lease."""

    def find() -> Run:
        record = _visible_run(gateway, caller, run)
        gateway.renew_lease(record)
        return record

    return await run_in_threadpool(find)


def _visible_run(gateway: Gateway, caller: Caller, run: str) -> Run:
    """Return a run. For other callers than its owner it does not exist."""
    record = gateway.registry.get_run(run)
    if record.is_purged or not caller.may_see(record.owner):
        raise RunNotFound(f"no run {run}")
    return record


async def _earlier_run(
    gateway: GatewayDep,
    caller: CallerDep,
    since: Annotated[
        str | None, Query(pattern=f"^{RUN_ID.pattern}$", description="Compare with the answers of this run.")
    ] = None,
) -> Run | None:
    return None if since is None else await run_in_threadpool(_visible_run, gateway, caller, since)


RunDep = Annotated[Run, Depends(_run)]
EarlierRunDep = Annotated[Run | None, Depends(_earlier_run)]


async def _table(run: RunDep, table: Annotated[str, Path(json_schema_extra={"enum": list(LAYOUT)})]) -> Table:
    """Return the table of the path, with the columns that the questions of the run need."""
    if run.data is not None:
        message = f"run {run.run} is over data set {run.data.name}: it sends files, and has no tables to send"
        raise Refusal(409, "data_set", message)
    tables = QuestionSet.from_dict(run.questions).tables
    if table not in tables:
        raise Refusal(404, "not_found", f"table {table[:40]!r}: this run reads {', '.join(tables)}")
    return tables[table]


TableDep = Annotated[Table, Depends(_table)]

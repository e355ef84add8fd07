"""What every call of one gateway works with, and the run that a call is about."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Annotated, cast

from fastapi import Depends, Path, Request
from starlette.concurrency import run_in_threadpool

from kopitiam.bus.outbox import Outbox
from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError, RunNotFound, RunOver
from kopitiam.contracts.layout import Home
from kopitiam.contracts.runs import Run, RunState
from kopitiam.contracts.tables import Table
from kopitiam.gateway.access import ANYBODY, Access, Caller
from kopitiam.gateway.admission import Admission
from kopitiam.gateway.endings import Endings
from kopitiam.gateway.heartbeats import Heartbeats
from kopitiam.gateway.hosts import machine_of
from kopitiam.gateway.intake import Intake
from kopitiam.gateway.metrics import Metrics
from kopitiam.gateway.pictures import Pictures
from kopitiam.gateway.problems import Refusal
from kopitiam.gateway.rates import Rates
from kopitiam.gateway.readiness import Readiness
from kopitiam.gateway.sound_answers import SoundAnswers
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.port import RegistryPort
from kopitiam.storage.port import StoragePort
from kopitiam.system.health import Health

_RENEW_BELOW = 0.8  # of a lease: no write for every single call
_MOST_RENEWALS = 10_000  # runs; one that is forgotten is renewed once more


class Renewals:
    """When this gateway last renewed the lease of each run, by a clock that nobody can set. The registry
    says when a lease runs out: its clock is not this machine's."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._renewed: dict[str, float] = {}  # the one renewed longest ago comes first

    def is_due(self, run: str, after_seconds: float) -> bool:
        return self._steady() - self._renewed.get(run, -math.inf) >= after_seconds

    def note(self, run: str) -> None:
        self._renewed.pop(run, None)
        self._renewed[run] = self._steady()
        while len(self._renewed) > _MOST_RENEWALS:
            self._renewed.pop(next(iter(self._renewed)), None)


@dataclass
class Gateway:
    settings: Settings
    home: Home
    incoming: FilePath  # bodies that this life of the gateway has not accepted yet
    storage: StoragePort
    registry: RegistryPort
    bus: BusPort
    intake: Intake
    access: Access
    admission: Admission
    rates: Rates
    failures: Rates  # of callers with wrong tokens, by address
    metrics: Metrics
    readiness: Readiness
    heartbeats: Heartbeats
    endings: Endings
    health: Health  # of the work in the same process; a gateway of a fleet has none beside it
    outbox: Outbox[str, Callable[[], None]]
    sound_answers: SoundAnswers
    pictures: Pictures
    renewals: Renewals = field(default_factory=Renewals)

    def renewed(self, run: Run) -> Run:
        """Any call shows that the client lives."""
        lease = self.settings.gateway.lease_seconds
        if run.state is RunState.OPEN and self.renewals.is_due(run.run, (1 - _RENEW_BELOW) * lease):
            with contextlib.suppress(RunOver):  # it may end at this very moment
                self.registry.renew_lease(run.run, lease)
                self.renewals.note(run.run)
        return run

    @contextlib.asynccontextmanager
    async def keeping(self, run: Run) -> AsyncIterator[None]:
        """Keeps the lease while a body comes in and is checked, however slowly."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self.settings.gateway.lease_seconds / 3)
                with contextlib.suppress(KopitiamError):  # the chunk itself will meet it, and say so
                    found = await run_in_threadpool(self.registry.get_run, run.run)
                    await run_in_threadpool(self.renewed, found)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()


def _gateway(request: Request) -> Gateway:
    return cast(Gateway, request.app.state.gateway)


GatewayDep = Annotated[Gateway, Depends(_gateway)]


def _address(request: Request) -> str:
    return machine_of(request.client.host) if request.client else ""


async def identify(request: Request, gateway: GatewayDep) -> Caller:
    """The caller. Raises Refusal: 401 without a valid token, 429 for an address that guesses tokens too fast.

    While an address guesses too fast its right tokens are refused too: otherwise guessing could go on. A web
    page can make a browser call without a token, but not with a wrong one, so only wrong tokens count here.
    """
    address = _address(request)
    is_guess = "authorization" in request.headers and gateway.settings.gateway.needs_token
    if is_guess:
        gateway.failures.require(address)
    try:
        return gateway.access.caller(request)
    except Refusal:
        (gateway.failures if is_guess else gateway.rates).admit(address)
        raise


KnownDep = Annotated[Caller, Depends(identify)]


async def _account(request: Request, known: KnownDep) -> str:
    """On whose account a call goes: the token's owner; where nobody needs a token, the machine."""
    return _address(request) if known.owner == ANYBODY else known.owner


AccountDep = Annotated[str, Depends(_account)]


async def _caller(gateway: GatewayDep, known: KnownDep, account: AccountDep) -> Caller:
    """Not faster than allowed."""
    gateway.rates.admit(account)
    return known


CallerDep = Annotated[Caller, Depends(_caller)]


async def _run(
    run: Annotated[str, Path(pattern="^[a-z0-9]{16,32}$")], gateway: GatewayDep, caller: CallerDep
) -> Run:
    """A run of somebody else is as good as none."""

    def find() -> Run:
        found = gateway.registry.get_run(run)
        if not caller.may_see(found.owner):
            raise RunNotFound(f"no run {run}")
        return gateway.renewed(found)

    return await run_in_threadpool(find)


RunDep = Annotated[Run, Depends(_run)]


async def _table(run: RunDep, table: Annotated[str, Path(json_schema_extra={"enum": list(LAYOUT)})]) -> Table:
    """The table in the normal form that this run wants."""
    tables = QuestionSet.from_dict(run.questions).tables
    if table not in tables:
        raise Refusal(404, "not_found", f"table {table[:40]!r}: this run wants {', '.join(tables)}")
    return tables[table]


TableDep = Annotated[Table, Depends(_table)]

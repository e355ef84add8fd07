"""What every call of one gateway works with, and the run that a call is about."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, cast

from fastapi import Depends, Path, Request
from starlette.concurrency import run_in_threadpool

from kopitiam.bus.port import BusPort
from kopitiam.contracts.api import TableName
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError, RunNotFound, RunOver
from kopitiam.contracts.runs import Run, RunState
from kopitiam.gateway.access import ANYBODY, Access, Caller
from kopitiam.gateway.admission import Admission
from kopitiam.gateway.endings import Endings
from kopitiam.gateway.heartbeats import Heartbeats
from kopitiam.gateway.intake import Intake
from kopitiam.gateway.metrics import Metrics
from kopitiam.gateway.rates import Rates
from kopitiam.landing.layout import Home
from kopitiam.registry.port import RegistryPort
from kopitiam.storage.port import StoragePort

_RENEW_BELOW = 0.8  # of a lease: no write for every single call


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
    metrics: Metrics
    heartbeats: Heartbeats
    endings: Endings

    def renewed(self, run: Run) -> Run:
        """Any call shows that the client lives."""
        lease = self.settings.gateway.lease_seconds
        if run.state is RunState.OPEN and run.lease_expires_at - time.time() < _RENEW_BELOW * lease:
            with contextlib.suppress(RunOver):  # it may end at this very moment
                self.registry.renew_lease(run.run, lease)
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


async def _known(request: Request, gateway: GatewayDep) -> Caller:
    return gateway.access.caller(request)


KnownDep = Annotated[Caller, Depends(_known)]


async def _caller(request: Request, gateway: GatewayDep, known: KnownDep) -> Caller:
    """Not faster than allowed. Where nobody needs a token, a machine counts as an owner."""
    machine = request.client.host if request.client else ""
    gateway.rates.admit(machine if known.owner == ANYBODY else known.owner)
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
TablePath = Annotated[TableName, Path(description="One of the five tables.")]

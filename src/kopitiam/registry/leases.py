"""Leases with an epoch: who may act now, and proof for those who write that they still may. Each
function is a part of a transaction.

The row of a lease is never deleted, so that an epoch is never given twice.
"""

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select, update

from kopitiam.contracts.errors import StaleEpoch
from kopitiam.registry.records import RANK_DIGITS, Fence, Lease
from kopitiam.registry.schema import leases
from kopitiam.registry.transactions import upsert

NOBODY = ""


def acquire(connection: Connection, name: str, holder: str, ttl_seconds: float, now: float) -> int | None:
    _want_holder(holder)
    expires_at = now + ttl_seconds
    is_ours = and_(leases.c.holder == holder, leases.c.expires_at > now)
    taking = upsert(connection, leases).values(name=name, holder=holder, epoch=1, expires_at=expires_at)
    epoch: int | None = connection.execute(
        taking.on_conflict_do_update(
            index_elements=[leases.c.name],
            set_={
                "holder": holder,
                "expires_at": expires_at,
                "epoch": case((is_ours, leases.c.epoch), else_=leases.c.epoch + 1),
            },
            where=or_(is_ours, leases.c.expires_at <= now),
        ).returning(leases.c.epoch)
    ).scalar_one_or_none()
    return epoch


def outrank(connection: Connection, name: str, ranked: str, ttl_seconds: float, now: float) -> int | None:
    is_lower = func.substr(leases.c.holder, 1, RANK_DIGITS) <= ranked[:RANK_DIGITS]
    query = select(leases.c.epoch).where(leases.c.name == name, leases.c.holder != ranked, is_lower)
    if connection.scalar(query.with_for_update()) is not None:
        return enlist(connection, name, ranked, ttl_seconds, now)
    return acquire(connection, name, ranked, ttl_seconds, now)


def enlist(connection: Connection, name: str, holder: str, ttl_seconds: float, now: float) -> int:
    _want_holder(holder)
    expires_at = now + ttl_seconds
    taking = upsert(connection, leases).values(name=name, holder=holder, epoch=1, expires_at=expires_at)
    epoch: int = connection.execute(
        taking.on_conflict_do_update(
            index_elements=[leases.c.name],
            set_={"holder": holder, "expires_at": expires_at, "epoch": leases.c.epoch + 1},
        ).returning(leases.c.epoch)
    ).scalar_one()
    return epoch


def renew(connection: Connection, lease: Fence, ttl_seconds: float, now: float) -> bool:
    """Also after it has run out, if nobody wanted it: the database itself may have been away."""
    renewing = update(leases).where(_is_ours(lease))
    return connection.execute(renewing.values(expires_at=now + ttl_seconds)).rowcount == 1


def release(connection: Connection, lease: Fence, now: float) -> bool:
    releasing = update(leases).where(_is_current(lease, now))
    return connection.execute(releasing.values(holder=NOBODY, expires_at=0.0)).rowcount == 1


def holds(connection: Connection, lease: Fence, now: float) -> bool:
    return connection.scalar(select(leases.c.epoch).where(_is_current(lease, now))) is not None


def list_leases(connection: Connection, now: float) -> dict[str, Lease]:
    rows = connection.execute(select(leases.c.name, leases.c.epoch, leases.c.holder, leases.c.expires_at))
    return {row.name: Lease(row.epoch, row.holder, now - row.expires_at) for row in rows}


def guard(connection: Connection, fence: Fence | None) -> None:
    """From here to the end of the transaction nobody can take the lease over. One that has run out, and
    that nobody took, is as good: whoever takes it becomes its holder, and that is what fences."""
    if fence is None:
        return
    query = select(leases.c.epoch).where(_is_ours(fence))
    if connection.scalar(query.with_for_update(read=True)) is None:
        raise StaleEpoch(f"epoch {fence.epoch} of {fence.name} is over")


def _is_ours(lease: Fence) -> ColumnElement[bool]:
    return and_(
        leases.c.name == lease.name,
        leases.c.epoch == lease.epoch,
        leases.c.holder == lease.holder,
        leases.c.holder != NOBODY,
    )


def _is_current(lease: Fence, now: float) -> ColumnElement[bool]:
    return and_(_is_ours(lease), leases.c.expires_at > now)


def _want_holder(holder: str) -> None:
    if not holder:
        raise ValueError("a lease wants a holder")

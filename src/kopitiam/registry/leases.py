"""Leases with an epoch, which decide which process may act, and the reported states of nodes.

The row of a lease is never deleted, so that no epoch is granted twice. Writes are fenced by leases in
`transactions.py`.
"""

from dataclasses import asdict, fields

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, or_, select, update

from kopitiam.contracts.messages import NodeRecord
from kopitiam.registry.records import RANK_DIGITS, Fence, Lease, ranked_holder
from kopitiam.registry.schema import leases, nodes, upsert
from kopitiam.registry.transactions import NO_HOLDER, RegistryBase, is_held_by

NODE_COLUMNS = tuple(nodes.c[field.name] for field in fields(NodeRecord))


class LeaseTransactions(RegistryBase):
    def acquire_lease(self, name: str, holder: str, ttl_seconds: float) -> int | None:
        """Take a lease that is free or expired, and return its new epoch.

        Returns the current epoch if `holder` has the lease, None if another one has it.
        """
        _require_holder(holder)
        return self._write(lambda c: _acquire(c, name, holder, ttl_seconds, self._clock(c)))

    def take_over(self, name: str, holder: str, ttl_seconds: float) -> int:
        """Take the lease from any holder, and return the next epoch.

        A restarted node supersedes its earlier process, whose next fenced write is refused.
        """
        _require_holder(holder)
        return self._write(lambda c: _take_over(c, name, holder, ttl_seconds, self._clock(c)))

    def take_over_if_higher(self, name: str, rank: int, holder: str, ttl_seconds: float) -> int | None:
        """As `acquire_lease`, but also take the lease from a holder of a lower or the same rank.

        The name of the new holder is `ranked_holder(rank, holder)`.
        """
        ranked = ranked_holder(rank, holder)

        def take(connection: Connection) -> int | None:
            now = self._clock(connection)
            is_lower = func.substr(leases.c.holder, 1, RANK_DIGITS) <= ranked[:RANK_DIGITS]
            query = select(leases.c.epoch).where(leases.c.name == name, leases.c.holder != ranked, is_lower)
            if connection.scalar(query.with_for_update()) is not None:
                return _take_over(connection, name, ranked, ttl_seconds, now)
            return _acquire(connection, name, ranked, ttl_seconds, now)

        return self._write(take)

    def renew(self, name: str, holder: str, epoch: int, ttl_seconds: float) -> bool:
        """Extend a lease; False if it was released or another holder took it, and the caller must stop.

        An expired lease that no other holder took is renewed too: the database may have been unavailable.
        """
        renewing = update(leases).where(is_held_by(Fence(name, epoch, holder)))

        def renew(connection: Connection) -> bool:
            expires_at = self._clock(connection) + ttl_seconds
            return connection.execute(renewing.values(expires_at=expires_at)).rowcount == 1

        return self._write(renew)

    def holds(self, fence: Fence) -> bool:
        """Whether the lease has this epoch and this holder, and has not expired."""
        return self._read(lambda c: holds_lease(c, fence, self._clock(c)))

    def leases(self) -> dict[str, Lease]:
        """Return all leases by name, expired and released ones included."""

        def list_leases(connection: Connection) -> dict[str, Lease]:
            now = self._clock(connection)
            query = select(leases.c.name, leases.c.epoch, leases.c.holder, leases.c.expires_at)
            rows = connection.execute(query)
            return {row.name: Lease(row.epoch, row.holder, now - row.expires_at) for row in rows}

        return self._read(list_leases)

    def release(self, name: str, holder: str, epoch: int) -> bool:
        """Give up a lease; False if it has expired or another holder has it."""

        def release(connection: Connection) -> bool:
            releasing = update(leases).where(_is_current(Fence(name, epoch, holder), self._clock(connection)))
            return connection.execute(releasing.values(holder=NO_HOLDER, expires_at=0.0)).rowcount == 1

        return self._write(release)


class NodeTransactions(RegistryBase):
    def report_node(self, node: NodeRecord, fence: Fence | None = None) -> bool:
        """Store the state of a node. False, and no effect, if a later epoch of this node was reported.

        A report by the node itself, fenced by its own lease, is always stored: an epoch from before the
        registry was restored may be larger.
        """
        is_own = fence is not None and fence.name == node.name

        def report(connection: Connection) -> bool:
            values = {**asdict(node), "updated_at": self._clock(connection)}
            reporting = upsert(connection, nodes).values(values)
            stored = connection.scalar(
                reporting.on_conflict_do_update(
                    index_elements=[nodes.c.name],
                    set_=values,
                    where=None if is_own else nodes.c.epoch <= node.epoch,
                ).returning(nodes.c.name)
            )
            return stored is not None

        return self._write_fenced(fence, report)

    def nodes(self) -> list[NodeRecord]:
        """Return the nodes by name."""
        query = select(*NODE_COLUMNS).order_by(nodes.c.name)
        return self._read(lambda c: [NodeRecord(*row) for row in c.execute(query)])

    def delete_node(self, name: str, fence: Fence | None = None) -> None:
        self._write_fenced(fence, lambda c: c.execute(delete(nodes).where(nodes.c.name == name)))


def holds_lease(connection: Connection, fence: Fence, now: float) -> bool:
    return connection.scalar(select(leases.c.epoch).where(_is_current(fence, now))) is not None


def _acquire(connection: Connection, name: str, holder: str, ttl_seconds: float, now: float) -> int | None:
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


def _take_over(connection: Connection, name: str, holder: str, ttl_seconds: float, now: float) -> int:
    expires_at = now + ttl_seconds
    taking = upsert(connection, leases).values(name=name, holder=holder, epoch=1, expires_at=expires_at)
    epoch: int = connection.execute(
        taking.on_conflict_do_update(
            index_elements=[leases.c.name],
            set_={"holder": holder, "expires_at": expires_at, "epoch": leases.c.epoch + 1},
        ).returning(leases.c.epoch)
    ).scalar_one()
    return epoch


def _is_current(fence: Fence, now: float) -> ColumnElement[bool]:
    return and_(is_held_by(fence), leases.c.expires_at > now)


def _require_holder(holder: str) -> None:
    if not holder:
        raise ValueError("a lease needs a holder")

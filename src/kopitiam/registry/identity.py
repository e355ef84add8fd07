"""Who this registry is, and what lies in storage that it does not know. Each function is a part of a
transaction.
"""

from collections.abc import Iterable

from sqlalchemy import Connection, delete, exists, insert, literal, select, update

from kopitiam.contracts.identity import Identity
from kopitiam.registry.schema import identity, leases, orphans, runs


def get_identity(connection: Connection) -> Identity:
    found = connection.execute(select(identity.c.id, identity.c.mark)).one()
    used = select(literal(1)).where(exists(select(runs.c.run)) | exists(select(leases.c.name)))
    return Identity(found.id, found.mark, found.mark > 0 or connection.scalar(used) is not None)


def advance(connection: Connection, beyond: int) -> Identity:
    """The row is locked by the first statement: marks are given once."""
    connection.execute(update(identity).values(mark=identity.c.mark + 1))
    connection.execute(update(identity).where(identity.c.mark <= beyond).values(mark=beyond + 1))
    return get_identity(connection)


def wait_longer(
    connection: Connection, names: Iterable[str], most_seconds: float, now: float
) -> dict[str, float]:
    """Seconds for which each name has been unknown, by what was seen: a clock that jumps, or a time when
    nobody looked, counts as `most_seconds` at most. Names that are not given any more are forgotten."""
    connection.execute(select(identity.c.id).with_for_update()).all()  # one gateway at a time
    before = {row.name: row for row in connection.execute(select(orphans))}
    waited = {}
    for name in names:
        seen = before.get(name)
        waited[name] = seen.waited + min(max(now - seen.seen_at, 0.0), most_seconds) if seen else 0.0
    connection.execute(delete(orphans))
    if waited:
        rows = [{"name": name, "waited": seconds, "seen_at": now} for name, seconds in waited.items()]
        connection.execute(insert(orphans), rows)
    return waited

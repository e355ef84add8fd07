"""A row that is written and read back to see whether the database does its part. Each function is a part
of a transaction.
"""

from sqlalchemy import Connection, select

from kopitiam.registry.schema import readiness
from kopitiam.registry.transactions import upsert


def write(connection: Connection) -> int:
    writing = upsert(connection, readiness).values(name="registry", checks=1)
    checks: int = connection.execute(
        writing.on_conflict_do_update(
            index_elements=[readiness.c.name], set_={"checks": readiness.c.checks + 1}
        ).returning(readiness.c.checks)
    ).scalar_one()
    return checks


def read(connection: Connection) -> int:
    return connection.scalar(select(readiness.c.checks)) or 0

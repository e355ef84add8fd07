"""The nodes of the fleet, each as its latest life was reported. Each function is a part of a transaction."""

from dataclasses import asdict, fields

from sqlalchemy import Connection, delete, select

from kopitiam.contracts.nodes import NodeRecord
from kopitiam.registry.schema import nodes
from kopitiam.registry.transactions import upsert

COLUMNS = tuple(nodes.c[field.name] for field in fields(NodeRecord))


def report(connection: Connection, node: NodeRecord, now: float, *, is_own: bool) -> bool:
    """A node that reports itself under its own fence is the current life, whatever epoch was shown before:
    a life from before the registry was restored may have had a larger one."""
    values = {**asdict(node), "updated_at": now}
    reporting = upsert(connection, nodes).values(values)
    reported = connection.scalar(
        reporting.on_conflict_do_update(
            index_elements=[nodes.c.name], set_=values, where=None if is_own else nodes.c.epoch <= node.epoch
        ).returning(nodes.c.name)
    )
    return reported is not None


def list_nodes(connection: Connection) -> list[NodeRecord]:
    return [NodeRecord(*row) for row in connection.execute(select(*COLUMNS).order_by(nodes.c.name))]


def forget(connection: Connection, name: str) -> None:
    connection.execute(delete(nodes).where(nodes.c.name == name))

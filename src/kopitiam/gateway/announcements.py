"""Messages to the nodes about the tables of a run. No web framework is imported here: `kopi analyze`, which
has no gateway, sends them too."""

import logging
from typing import TYPE_CHECKING

from kopitiam.bus.port import BusPort
from kopitiam.contracts.errors import RunNotFound, Unavailable
from kopitiam.contracts.messages import TableEnd, end_topic
from kopitiam.system.crash_points import crash_point

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_log = logging.getLogger(__name__)


def publish_end(registry: "Registry", bus: BusPort, run: str, table: str) -> None:
    """Publish the END of a sealed table with what each shard expects. Reconciliation repairs a lost
    message."""
    try:
        expected = registry.expectations(run)[table]
        shards = {shard: (volume.chunks, volume.rows) for shard, volume in expected.items()}
        bus.publish(end_topic(table), TableEnd(run=run, table=table, shards=shards))
        crash_point("table.announced")
    except (Unavailable, RunNotFound) as error:
        _log.warning("run %s: the END of %s is not published: %s", run, table, error, extra={"run": run})

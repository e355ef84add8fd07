"""What a gateway tells the other nodes. The registry has it already: lost messages are made up for by
reconciliation. No client waits for the bus: a thread of the gateway's own sends them.
"""

import logging

from kopitiam.contracts.errors import RunNotFound, Unavailable
from kopitiam.contracts.messages import ForceEnd, TableEnd, end_topic
from kopitiam.gateway.context import Gateway
from kopitiam.landing.tidying import remove_run
from kopitiam.system.crash_points import crash_point

_log = logging.getLogger(__name__)


def tell_end(gateway: Gateway, run: str, table: str) -> None:
    """Every shard of the table gets its END with its own figures, zero included."""
    gateway.outbox.put(f"END of {table} of run {run}", lambda: _publish_end(gateway, run, table))


def _publish_end(gateway: Gateway, run: str, table: str) -> None:
    try:
        shards = gateway.registry.expectations(run)[table]
        told = {shard: (volume.chunks, volume.rows) for shard, volume in shards.items()}
        gateway.bus.publish(end_topic(table), TableEnd(run=run, table=table, shards=told))
        crash_point("table.told")
    except (Unavailable, RunNotFound) as error:
        _log.warning("run %s: the END of %s is not told: %s", run, table, error, extra={"run": run})


def force_end(gateway: Gateway, run: str, reason: str) -> None:
    """In the registry first, which makes it so; then to all nodes; then the files."""
    crash_point("force_end.begun")
    if not gateway.registry.force_end(run, reason):
        return
    crash_point("force_end.recorded")
    _log.warning("run %s: Force End, %s", run, reason, extra={"run": run})
    message = ForceEnd(runs=(run,), reason=reason)
    gateway.outbox.put(f"Force End of run {run}", lambda: gateway.bus.broadcast(message))
    crash_point("force_end.told")
    try:
        remove_run(gateway.storage, run)
    except Unavailable as error:  # the janitor does it later
        _log.warning("run %s is not tidied up yet: %s", run, error, extra={"run": run})

"""What a gateway tells the other nodes. The registry has it already: what is lost here is only late."""

import logging

from kopitiam.contracts.errors import RunNotFound, Unavailable
from kopitiam.contracts.messages import ForceEnd, TableEnd, end_topic
from kopitiam.gateway.context import Gateway
from kopitiam.landing.tidying import remove_run

_log = logging.getLogger(__name__)


def tell_end(gateway: Gateway, run: str, table: str) -> None:
    """Every shard of the table gets its END with its own figures, zero included."""
    try:
        shards = gateway.registry.expectations(run)[table]
        told = {shard: (volume.chunks, volume.rows) for shard, volume in shards.items()}
        gateway.bus.publish(end_topic(table), TableEnd(run=run, table=table, shards=told))
    except (Unavailable, RunNotFound) as error:
        _log.warning("run %s: the END of %s is not told: %s", run, table, error, extra={"run": run})


def force_end(gateway: Gateway, run: str, reason: str) -> None:
    """In the registry first, which makes it so; then to all nodes; then the files."""
    if not gateway.registry.force_end(run, reason):
        return
    _log.warning("run %s: Force End, %s", run, reason, extra={"run": run})
    try:
        gateway.bus.broadcast(ForceEnd(runs=(run,), reason=reason))
    except Unavailable as error:
        _log.warning("Force End is not told: %s", error)
    try:
        remove_run(gateway.storage, run)
    except Unavailable as error:  # the janitor does it later
        _log.warning("run %s is not tidied up yet: %s", run, error, extra={"run": run})

"""The log of a shard has two lanes, so that a small run need not wait until a large one has passed. No I/O.

The first chunks of every table go into the express lane, the others into the slow one, and a batch takes
from both. A lane is a number: that of its shard, or as far above it as there can be shards.
"""

MOST_SHARDS = 1024
EXPRESS_CHUNKS = 32  # of each table of a run: some four million rows


def lane_of(number: int, shards: int) -> int:
    """Where the chunk of that number goes in a run of so many shards."""
    shard = number % shards
    return shard if number < EXPRESS_CHUNKS else slow_lane(shard)


def slow_lane(shard: int) -> int:
    return MOST_SHARDS + shard


def shard_of(lane: int) -> int:
    return lane % MOST_SHARDS

"""One log line for each action of a leader: a barrier opened, a run ended, a node revived.

The registry records which monitor holds an epoch, but not which one acts under it. `kopi chaos` reads these
lines to check that only the holder of an epoch acted under it.
"""

import logging
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

ActionKind = Literal["opens barrier of", "fails", "force-ends", "revives"]
_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)  # logged at every log level
_LINE = re.compile(r"leader of epoch (\d+) (opens barrier of|fails|force-ends|revives) ([\w-]+)")


class LeaderAction(NamedTuple):
    epoch: int
    deed: str
    subject: str  # a run or a node


def log_action(epoch: int, deed: ActionKind, subject: str) -> None:
    _log.info("leader of epoch %d %s %s", epoch, deed, subject)


def read_actions(log: str) -> Iterator[LeaderAction]:
    """Parse the actions from one monitor's log, in text or JSON form."""
    for epoch, deed, subject in _LINE.findall(log):
        yield LeaderAction(int(epoch), deed, subject)

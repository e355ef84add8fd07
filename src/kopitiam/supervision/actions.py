"""The log lines by which a leader says what it does: one for each barrier opened, run ended and node revived.

The registry shows who holds an epoch, never who acts under it. These lines come from the process that acts:
`kopi chaos` reads them to check that only the holder of an epoch acted under it.
"""

import logging
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

ActionKind = Literal["opens barrier of", "fails", "force-ends", "revives"]
_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)  # written even where only warnings are
_LINE = re.compile(r"leader of epoch (\d+) (opens barrier of|fails|force-ends|revives) ([\w-]+)")


class LeaderAction(NamedTuple):
    epoch: int
    deed: str
    subject: str  # a run or a node


def log_action(epoch: int, deed: ActionKind, subject: str) -> None:
    _log.info("leader of epoch %d %s %s", epoch, deed, subject)


def read_actions(log: str) -> Iterator[LeaderAction]:
    """The actions in the log of one monitor, as text or as JSON."""
    for epoch, deed, subject in _LINE.findall(log):
        yield LeaderAction(int(epoch), deed, subject)

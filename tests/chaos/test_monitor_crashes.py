"""Monitors crash at their crash points during an upload; the answers of the run are exact."""

import re
import signal
from pathlib import Path

import pytest
from fleets import Fleet
from monitor_crashes import COORDINATOR_POINTS, TAKEOVER_POINTS, Act, all_acts, play, sampled_acts

from kopitiam import supervision
from kopitiam_chaos.observer import RegistryObserver
from sampling import IS_FULL

SEED = 3
ACTS = all_acts() if IS_FULL else sampled_acts(SEED, 1)


def test_every_crash_point_of_monitors_is_in_an_act() -> None:
    source = "".join(path.read_text() for path in Path(supervision.__path__[0]).glob("*.py"))
    points = set(re.findall(r'crash_point\("([\w.]+)"\)', source))
    assert points == {*COORDINATOR_POINTS, *TAKEOVER_POINTS}
    assert {point for act in all_acts() for point in act.points} == points


@pytest.mark.long
@pytest.mark.parametrize("act", ACTS, ids=lambda act: "-".join(act.points))
def test_the_answers_are_exact_after_a_leader_and_its_successor_crash(
    fleet: Fleet, observer: RegistryObserver, small_folder: Path, tmp_path: Path, act: Act
) -> None:
    outcome = play(fleet, act, small_folder, tmp_path / "answers")
    assert outcome.exit_codes == dict.fromkeys(act.points, -signal.SIGKILL), fleet.status_text()
    assert (outcome.rows_lost, outcome.rows_double) == (0, 0)
    assert fleet.leaders() == ["monitor-3"], fleet.status_text()
    assert observer.violations() == []

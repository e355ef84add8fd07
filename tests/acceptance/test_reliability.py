"""A small sample of the faults that `make reliability` runs in full, through the same functions."""

from pathlib import Path

import pytest

from sampling import IS_FULL
from tools.reliability.faults import FAULTS, run_fault
from tools.reliability.measurements import Verdict
from tools.reliability.scenes import Session

SEED = 5
SECONDS = "s"  # `make reliability` judges times, on a machine without other work
QUICK = ("power-cut", "slow-senders")
LONG = ("many-runs", "many-clients")  # minutes each: for `make reliability` alone
ON_MACHINES = ("cuts", "slow-links", "lost-machines", "storms", "growth")  # by tests/hosts
SAMPLED = [name for name in FAULTS if name not in (*LONG, *ON_MACHINES)] if IS_FULL else QUICK


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLED)
def test_a_fault_meets_its_targets_but_for_times(name: str, tmp_path: Path) -> None:
    measurements = list(run_fault(name, Session(tmp_path, SEED, is_sample=True)))
    for each in measurements:
        if each.verdict is Verdict.NOT_MEASURED:
            pytest.skip(str(each.skipped))
    assert [each.error for each in measurements if each.error] == []
    missed = [figure for each in measurements for figure in each.figures if not figure.is_met]
    assert [figure.measured for figure in missed if figure.unit != SECONDS] == []
    assert all(each.figures for each in measurements)

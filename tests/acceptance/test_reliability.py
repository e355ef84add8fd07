"""A small sample of the faults that `make reliability` runs in full, through the same functions."""

from pathlib import Path

import pytest

from sampling import IS_FULL
from tools.reliability.faults import FAULTS, run_fault
from tools.reliability.measurements import Verdict
from tools.reliability.scenes import Session

SEED = 5
QUICK = ("power-cut", "slow-senders")
LONG = ("many-runs", "many-clients")  # minutes each: for `make reliability` alone
SAMPLED = [name for name in FAULTS if name not in LONG] if IS_FULL else QUICK


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLED)
def test_a_fault_meets_its_targets(name: str, tmp_path: Path) -> None:
    measurements = list(run_fault(name, Session(tmp_path, SEED, is_sample=True)))
    for each in measurements:
        if each.verdict is Verdict.NOT_MEASURED:
            pytest.skip(str(each.skipped))
    assert [words for each in measurements for words in each.missed] == []
    assert all(each.figures for each in measurements)

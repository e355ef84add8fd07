"""The cases of the fault clocks."""

import itertools

import pytest

from tools.reliability.clock_cases import ALWAYS, NODES, OFFSETS, all_cases, sampled_cases


def test_the_full_set_has_every_node_with_every_offset_and_every_node_with_jumps() -> None:
    cases = all_cases()
    constant = {(case.node, case.offsets[0]) for case in cases if not case.is_jumping}
    assert constant == set(itertools.product(NODES, OFFSETS))
    assert [case.node for case in cases if case.is_jumping] == list(NODES)
    assert len(cases) == len(set(cases)) == 27


@pytest.mark.parametrize("seed", range(20))
def test_every_sample_has_the_leader_ahead_by_61_seconds_and_a_jump(seed: int) -> None:
    cases = sampled_cases(seed)
    assert cases == sampled_cases(seed)
    assert cases[0] == ALWAYS
    assert str(ALWAYS) == "monitor-3 by +61 s"
    assert [case.is_jumping for case in cases] == [False, False, True]
    assert set(cases) <= set(all_cases())

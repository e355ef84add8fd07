"""The plan follows from the seed, and the bounds keep a fleet able to recover."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.errors import ConfigError
from kopitiam_chaos.plan import LEADER, MAX_DOWN, STABLE_SECONDS, Pace, StrikeLimits, chosen, groups_of, plan

KINDS = {
    "gateway-1": "gateway",
    "gateway-2": "gateway",
    "pipeline-1": "pipeline",
    "monitor-1": "monitor",
    "monitor-2": "monitor",
    "monitor-3": "monitor",
    "rabbitmq": "service",
    "postgresql": "service",
    "spark-master": "service",
    "spark-worker-1": "service",
    "spark-worker-2": "service",
}
GROUPS = groups_of(KINDS)
PACE = Pace(pause=(1, 5), hold=(2, 9))
seeds = st.integers(min_value=0, max_value=2**63)
counts = st.integers(min_value=1, max_value=60)


def group_of(strike):
    return next(group for group, names in GROUPS.items() if strike.target in names)


def test_nodes_are_grouped_by_kind_and_the_leader_is_a_group_of_its_own():
    assert GROUPS == {
        "gateway": ("gateway-1", "gateway-2"),
        "pipeline": ("pipeline-1",),
        "monitor": ("monitor-1", "monitor-2", "monitor-3"),
        "rabbitmq": ("rabbitmq",),
        "postgresql": ("postgresql",),
        "spark-master": ("spark-master",),
        "spark-worker": ("spark-worker-1", "spark-worker-2"),
        LEADER: (LEADER,),
    }


def test_the_only_monitor_is_not_a_target():
    assert groups_of({"gateway-1": "gateway", "monitor-1": "monitor"}) == {"gateway": ("gateway-1",)}


@given(seeds, counts, st.booleans())
def test_the_same_seed_gives_the_same_plan(seed, kills, is_freezing):
    plans = [plan(seed, kills, GROUPS, PACE, is_freezing=is_freezing) for _ in range(2)]
    assert plans[0] == plans[1]
    assert [strike.number for strike in plans[0]] == list(range(1, kills + 1))


@given(seeds, counts)
def test_with_freezes_the_same_nodes_are_struck_after_the_same_pauses(seed, kills):
    plain, frozen = (
        plan(seed, kills, GROUPS, PACE, is_freezing=is_freezing) for is_freezing in (False, True)
    )
    assert [(each.target, each.pause_seconds) for each in plain] == [
        (each.target, each.pause_seconds) for each in frozen
    ]


@given(seeds, counts)
def test_a_longer_plan_begins_like_the_shorter_one(seed, kills):
    longer = plan(seed, kills + 5, GROUPS, PACE, is_freezing=True)
    assert longer[:kills] == plan(seed, kills, GROUPS, PACE, is_freezing=True)


@given(seeds, counts)
def test_strike_counts_of_groups_differ_by_one_at_most(seed, kills):
    struck = Counter(group_of(strike) for strike in plan(seed, kills, GROUPS, PACE, is_freezing=True))
    assert len(struck) == min(kills, len(GROUPS))
    assert max(struck.values()) - min(struck[group] for group in GROUPS) <= 1


@given(seeds, counts)
def test_pauses_and_holds_stay_within_the_pace(seed, kills):
    for strike in plan(seed, kills, GROUPS, PACE, is_freezing=True):
        assert 1 <= strike.pause_seconds <= 5
        assert strike.hold_seconds == 0 if strike.deed == "kill" else 2 <= strike.hold_seconds <= 9


def test_other_seeds_give_other_plans():
    assert len({plan(seed, 12, GROUPS, PACE, is_freezing=False) for seed in range(50)}) == 50


@pytest.mark.parametrize(
    ("targets", "groups"),
    [
        (["gateway"], {"gateway": ("gateway-1", "gateway-2")}),
        (["gateway-2", "rabbitmq"], {"gateway": ("gateway-2",), "rabbitmq": ("rabbitmq",)}),
        (["spark-worker"], {"spark-worker": ("spark-worker-1", "spark-worker-2")}),
        (["leader"], {LEADER: (LEADER,)}),
        (
            ["service"],
            {name: GROUPS[name] for name in ("rabbitmq", "postgresql", "spark-master", "spark-worker")},
        ),
    ],
)
def test_targets_are_names_groups_or_kinds(targets, groups):
    assert chosen(GROUPS, KINDS, targets) == groups


@pytest.mark.parametrize("word", ["", "gateway-3", "*"])
def test_an_unknown_target_is_refused_with_the_list_of_targets(word):
    with pytest.raises(
        ConfigError, match=rf"--targets {word.replace('*', '.')}: expected some of gateway, .*rabbitmq"
    ):
        chosen(GROUPS, KINDS, [word])


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.booleans()), max_size=200))
def test_the_limits_keep_the_fleet_able_to_recover(attempts):
    """Strikes nodes as far as the limits allow; some of them recover in between."""
    bounds = StrikeLimits(KINDS, revive_limit=5)
    for moment, (name, recovers) in enumerate(attempts):
        if recovers and bounds.down:
            bounds.on_back(sorted(bounds.down)[0], moment)
        if bounds.allow(name, moment):
            bounds.on_struck(name, moment)
        down = Counter(KINDS[each] for each in bounds.down)
        assert down["service"] <= 1
        assert down["monitor"] < 3
        assert down.total() <= MAX_DOWN


def test_a_node_that_is_down_is_not_struck_again():
    bounds = StrikeLimits(KINDS, revive_limit=5)
    bounds.on_struck("gateway-1", 0)
    assert not bounds.allow("gateway-1", 1)
    assert bounds.allow("gateway-2", 1)


def test_no_node_is_struck_so_often_that_the_monitors_give_it_up():
    bounds = StrikeLimits(KINDS, revive_limit=5)
    for moment in (0, 10):
        assert bounds.allow("gateway-1", moment)
        bounds.on_struck("gateway-1", moment)
        bounds.on_back("gateway-1", moment + 5)
    assert not bounds.allow("gateway-1", 20)
    assert bounds.allow("gateway-2", 20)
    assert bounds.allow("gateway-1", 15 + STABLE_SECONDS)
    bounds.on_struck("gateway-1", 15 + STABLE_SECONDS)
    bounds.on_back("gateway-1", 16 + STABLE_SECONDS)
    assert bounds.allow("gateway-1", 17 + STABLE_SECONDS), "its strike count was reset"

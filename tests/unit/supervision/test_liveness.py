"""Liveness by examples: who is dead, what is done about it, and what does not count."""

from kopitiam.contracts.messages import NodeRecord
from kopitiam.supervision.liveness import Alarm, Backoff, Decision, Liveness, Recovered, Revive

TIMEOUT, FIRST, STABLE = 20.0, 10.0, 60.0
ALARM = Alarm("p", "no heartbeat after 2 attempts to revive it")


def machine(**settings: object) -> Liveness:
    usual = {"timeout_seconds": TIMEOUT, "revive_backoff": (FIRST, 2.0, 30.0), "revive_limit": 2}
    return Liveness(
        {"p": "pipeline"}, **{**usual, "stable_seconds": STABLE, "pause_seconds": 5.0, **settings}
    )


def beat(liveness: Liveness, now: float, epoch: int = 1, pid: int = 100) -> list[Decision]:
    return liveness.on_heartbeat("p", "pipeline", epoch, pid, None, now)


def watch(liveness: Liveness, start: float, until: float) -> list[tuple[float, Decision]]:
    """Ticks every second, up to `until` itself; what was decided, and when."""
    times = [start + i for i in range(int(until - start) + 1)]
    return [(now, decision) for now in times for decision in liveness.tick(now)]


def live(liveness: Liveness, start: float, until: float, epoch: int = 1) -> list[Decision]:
    """A heartbeat every other second, and ticks."""
    decisions: list[Decision] = []
    for i in range(int(until - start) + 1):
        decisions += beat(liveness, start + i, epoch) if i % 2 == 0 else []
        decisions += liveness.tick(start + i)
    return decisions


def node(liveness: Liveness, now: float) -> NodeRecord:
    [record] = liveness.nodes(now)
    return record


# -- death and revival


def test_a_node_is_dead_after_the_timeout_without_a_heartbeat() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    assert watch(liveness, 1.0, TIMEOUT) == [(TIMEOUT, Revive("p", 1))]
    assert node(liveness, TIMEOUT).state == "dead"


def test_a_fresh_machine_gives_every_node_a_full_timeout() -> None:
    liveness = machine()
    assert node(liveness, 1000.0).state == "starting"
    assert watch(liveness, 1000.0, 1000.0 + TIMEOUT) == [(1000.0 + TIMEOUT, Revive("p", 1))]


def test_a_busy_node_whose_heartbeats_come_is_never_revived() -> None:
    assert live(machine(), 0.0, 500.0) == []


def test_a_trouble_is_shown_while_the_node_lives_and_takes_no_attempt_from_it_when_it_dies() -> None:
    liveness = machine()
    liveness.on_heartbeat("p", "pipeline", 1, 100, None, 0.0, "no space left")
    assert (node(liveness, 1.0).state, node(liveness, 1.0).alarm) == ("alive", "no space left")
    assert watch(liveness, 1.0, TIMEOUT - 1) == []
    assert (node(liveness, TIMEOUT).state, node(liveness, TIMEOUT).alarm) == ("dead", None)
    decisions = [decision for _, decision in watch(liveness, TIMEOUT, 200.0)]
    assert decisions == [Revive("p", 1), Revive("p", 2), ALARM]
    assert node(liveness, 200.0).alarm == ALARM.reason


def test_a_heartbeat_just_in_time_is_a_sign_of_life_though_the_tick_is_late() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    watch(liveness, 1.0, TIMEOUT - 1)
    beat(liveness, TIMEOUT + 1)
    assert liveness.tick(TIMEOUT + 2) == []


def test_a_revived_node_has_time_to_start_before_the_next_attempt() -> None:
    liveness = machine()
    assert watch(liveness, 0.0, TIMEOUT) == [(TIMEOUT, Revive("p", 1))]
    liveness.on_revived("p", TIMEOUT + 3)
    assert node(liveness, TIMEOUT + 3).state == "starting"
    again = TIMEOUT + 3 + FIRST
    assert watch(liveness, TIMEOUT + 4, again) == [(again, Revive("p", 2))]


def test_attempts_come_at_growing_distances_and_then_an_alarm_once() -> None:
    decided = watch(machine(), 0.0, 500.0)
    assert decided == [
        (TIMEOUT, Revive("p", 1)),
        (TIMEOUT + FIRST, Revive("p", 2)),
        (TIMEOUT + 3 * FIRST, ALARM),
    ]


def test_the_distance_has_a_bound() -> None:
    backoff = Backoff(10.0, 2.0, 30.0)
    assert [backoff.after(attempt) for attempt in (1, 2, 3, 4)] == [10.0, 20.0, 30.0, 30.0]


def test_a_node_that_comes_back_after_the_alarm_has_recovered() -> None:
    liveness = machine()
    watch(liveness, 0.0, 100.0)
    assert (node(liveness, 100.0).state, node(liveness, 100.0).alarm) == ("dead", ALARM.reason)
    assert beat(liveness, 101.0) == [Recovered("p")]
    assert beat(liveness, 102.0) == []
    assert (node(liveness, 102.0).state, node(liveness, 102.0).alarm) == ("alive", None)


def test_a_node_that_was_revived_has_recovered_too() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    liveness.on_revived("p", TIMEOUT)
    assert beat(liveness, TIMEOUT + 2, epoch=2) == [Recovered("p")]


def test_a_node_that_lived_long_enough_has_all_attempts_again() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT + FIRST)
    begun = TIMEOUT + FIRST + 1
    assert live(liveness, begun, begun + STABLE) == [Recovered("p")]
    silent = begun + STABLE
    decided = watch(liveness, silent + 1, silent + TIMEOUT)
    assert decided == [(silent + TIMEOUT, Revive("p", 1))]


def test_a_node_that_dies_again_soon_has_only_the_attempts_that_are_left() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT + FIRST)
    beat(liveness, 31.0)
    assert watch(liveness, 32.0, 31.0 + TIMEOUT) == [(31.0 + TIMEOUT, ALARM)]


def test_a_person_may_revive_after_the_alarm_without_a_second_one() -> None:
    liveness = machine()
    watch(liveness, 0.0, 100.0)
    liveness.on_revived("p", 101.0)
    assert node(liveness, 101.0).state == "starting"
    assert watch(liveness, 102.0, 300.0) == []
    assert node(liveness, 300.0).state == "dead"


def test_who_was_given_up_is_left_alone_until_it_is_heard_of() -> None:
    liveness = machine()
    liveness.tick(0.0)
    liveness.give_up("p", "no heartbeat")
    liveness.give_up("stranger", "no heartbeat")
    assert watch(liveness, 1.0, 500.0) == []
    assert (node(liveness, 500.0).state, node(liveness, 500.0).alarm) == ("dead", "no heartbeat")
    assert beat(liveness, 501.0) == [Recovered("p")]
    assert node(liveness, 501.0).alarm is None


def test_the_alarm_of_a_dead_node_stays_until_its_first_heartbeat() -> None:
    liveness = machine()
    watch(liveness, 0.0, 100.0)
    liveness.on_revived("p", 100.0)
    assert (node(liveness, 101.0).state, node(liveness, 101.0).alarm) == ("starting", ALARM.reason)
    watch(liveness, 101.0, 119.0)
    assert (node(liveness, 121.0).state, node(liveness, 121.0).alarm) == ("dead", ALARM.reason)


def test_without_attempts_there_is_an_alarm_at_once() -> None:
    decided = watch(machine(revive_limit=0), 0.0, 100.0)
    assert decided == [(TIMEOUT, Alarm("p", "no heartbeat after 0 attempts to revive it"))]


def test_a_heartbeat_before_the_revival_is_reported_keeps_the_node_alive() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    beat(liveness, TIMEOUT + 1)
    liveness.on_revived("p", TIMEOUT + 2)
    assert node(liveness, TIMEOUT + 2).state == "alive"


# -- what does not count as life


def test_a_zombie_does_not_count() -> None:
    liveness = machine()
    beat(liveness, 0.0, epoch=2, pid=200)
    decided = []
    for i in range(1, 21):
        beat(liveness, float(i), epoch=1, pid=100)
        decided += liveness.tick(float(i))
    assert decided == [Revive("p", 1)]
    assert (node(liveness, 20.0).epoch, node(liveness, 20.0).pid) == (2, 200)


def test_reordered_heartbeats_of_two_lives_do_no_harm() -> None:
    liveness = machine()
    for epoch in (1, 2, 1, 2, 1):
        assert beat(liveness, 1.0, epoch, pid=100 + epoch) == []
    record = node(liveness, 1.0)
    assert (record.state, record.epoch, record.pid) == ("alive", 2, 102)


def test_whoever_is_not_configured_or_of_another_kind_does_not_count() -> None:
    liveness = machine()
    liveness.tick(0.0)
    for now in (5.0, 10.0, 15.0):
        assert liveness.on_heartbeat("stranger", "gateway", 1, 1, None, now) == []
        assert liveness.on_heartbeat("p", "gateway", 1, 1, None, now) == []
    liveness.on_stopped("stranger")
    liveness.on_revived("stranger", 15.0)
    assert liveness.tick(TIMEOUT) == [Revive("p", 1)]


# -- leaving on purpose


def test_a_node_that_left_on_purpose_is_not_revived() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    liveness.on_stopped("p")
    assert watch(liveness, 1.0, 200.0) == []
    assert (node(liveness, 200.0).state, node(liveness, 200.0).since) == ("stopped", 0.0)


def test_a_fresh_machine_that_is_told_who_left_does_not_revive_it() -> None:
    liveness = machine()
    liveness.on_stopped("p")
    assert watch(liveness, 0.0, 200.0) == []


def test_a_heartbeat_that_was_sent_before_it_left_changes_nothing() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    liveness.on_stopped("p")
    assert beat(liveness, 1.0) == []
    assert node(liveness, 1.0).state == "stopped"


def test_a_new_life_after_it_left_counts_at_once() -> None:
    liveness = machine()
    beat(liveness, 0.0, epoch=1, pid=1)
    liveness.on_stopped("p")
    assert beat(liveness, 1.0, epoch=2, pid=1) == []
    assert node(liveness, 1.0).state == "alive"


def test_a_node_started_again_that_dies_before_its_first_heartbeat_is_revived() -> None:
    liveness = machine()
    beat(liveness, 0.0, epoch=1)
    liveness.on_stopped("p", 1)
    liveness.on_taken_over("p", 2, 5.0)
    assert node(liveness, 5.0).state == "starting"
    assert watch(liveness, 5.0, 5.0 + TIMEOUT) == [(5.0 + TIMEOUT, Revive("p", 1))]
    assert node(liveness, 5.0 + TIMEOUT).epoch == 2


def test_the_lease_of_the_life_that_stopped_does_not_start_the_node_again() -> None:
    liveness = machine()
    liveness.on_stopped("p", 3)
    liveness.on_taken_over("p", 3, 1.0)
    assert watch(liveness, 1.0, 200.0) == []


def test_a_new_lease_moves_no_deadline_of_a_node_that_did_not_stop() -> None:
    liveness = machine()
    beat(liveness, 0.0, epoch=1)
    assert watch(liveness, 1.0, TIMEOUT - 1) == []
    liveness.on_taken_over("p", 2, TIMEOUT - 1)
    assert watch(liveness, TIMEOUT, TIMEOUT) == [(TIMEOUT, Revive("p", 1))]


def test_heartbeats_that_keep_coming_prove_that_it_never_left() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    liveness.on_stopped("p")
    live(liveness, 1.0, TIMEOUT + 2)
    assert node(liveness, TIMEOUT + 2).state == "alive"


def test_a_revival_that_is_reported_late_does_not_undo_leaving() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    liveness.on_stopped("p")
    liveness.on_revived("p", TIMEOUT + 1)
    assert watch(liveness, TIMEOUT + 2, 200.0) == []


# -- odd clocks


def test_a_pause_of_the_monitor_itself_kills_nobody() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    watch(liveness, 1.0, 15.0)
    woken = 1000.0
    rest = TIMEOUT - 15.0
    assert watch(liveness, woken, woken + rest) == [(woken + rest, Revive("p", 1))]


def test_a_pause_does_not_use_up_the_time_to_start() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    assert watch(liveness, 1000.0, 1000.0 + FIRST) == [(1000.0 + FIRST, Revive("p", 2))]


def test_who_is_heard_first_after_a_pause_gets_no_more_than_a_timeout() -> None:
    liveness = machine()
    liveness.tick(0.0)
    beat(liveness, 1000.0)
    assert watch(liveness, 1000.0, 1000.0 + TIMEOUT) == [(1000.0 + TIMEOUT, Revive("p", 1))]


def test_a_pause_does_not_count_as_a_stable_life() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    beat(liveness, 21.0)
    beat(liveness, 1000.0)
    assert watch(liveness, 1001.0, 1000.0 + TIMEOUT) == [(1000.0 + TIMEOUT, Revive("p", 2))]


def test_to_be_asked_is_not_to_look() -> None:
    """Cut off from the bus, a monitor does not tick, though people may ask it for its nodes."""
    liveness = machine()
    beat(liveness, 0.0)
    for i in range(100):
        assert node(liveness, float(i)).state == "alive"
    assert liveness.tick(100.0) == []


def test_to_be_told_who_is_expected_is_not_to_look_either() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    for i in range(100):
        liveness.expect({"p": "pipeline"}, float(i))
    assert liveness.tick(100.0) == []


def test_whoever_is_given_time_has_a_full_timeout() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    watch(liveness, 1.0, 15.0)
    liveness.extend_deadlines(1000.0)
    assert watch(liveness, 1000.0, 1000.0 + TIMEOUT) == [(1000.0 + TIMEOUT, Revive("p", 1))]


def test_time_is_not_given_to_those_who_left() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    liveness.on_stopped("p")
    watch(liveness, 1.0, 15.0)
    liveness.extend_deadlines(15.0)
    watch(liveness, 16.0, TIMEOUT)
    beat(liveness, TIMEOUT)
    assert node(liveness, TIMEOUT).state == "alive", "it never left"


def test_a_clock_that_is_set_back_far_stops_nothing() -> None:
    liveness = machine()
    beat(liveness, 10_000.0)
    watch(liveness, 10_001.0, 10_005.0)
    assert watch(liveness, 0.0, TIMEOUT) == [(TIMEOUT - 5.0, Revive("p", 1))]


def test_time_that_goes_back_a_bit_does_no_harm() -> None:
    liveness = machine()
    beat(liveness, 10.0)
    assert beat(liveness, 9.5) == []
    assert liveness.tick(9.0) == []
    assert watch(liveness, 10.0, 10.0 + TIMEOUT) == [(10.0 + TIMEOUT, Revive("p", 1))]


# -- the view


def test_nodes_are_shown_in_the_order_of_the_configuration() -> None:
    liveness = Liveness({"m": "monitor", "g": "gateway"})
    liveness.tick(0.0)
    liveness.on_heartbeat("g", "gateway", 3, 42, "http://127.0.0.1:8440", 1.0)
    assert liveness.nodes(2.0) == [
        NodeRecord("m", "monitor", None, None, "starting", 0.0, 0),
        NodeRecord("g", "gateway", 42, "http://127.0.0.1:8440", "alive", 1.0, 3),
    ]


def test_a_node_whose_time_is_up_is_shown_dead_before_the_tick() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    watch(liveness, 1.0, TIMEOUT - 1)
    assert (node(liveness, 21.0).state, node(liveness, 21.0).since) == ("dead", TIMEOUT)
    assert liveness.tick(21.0) == [Revive("p", 1)]


# -- a fleet that changes


def test_a_node_that_is_added_has_a_full_timeout_and_is_then_revived() -> None:
    liveness = machine()
    live(liveness, 0.0, 100.0)
    liveness.expect({"p": "pipeline", "new": "gateway"}, 100.0)
    assert [(each.name, each.state) for each in liveness.nodes(100.0)] == [
        ("p", "alive"),
        ("new", "starting"),
    ]
    assert [decision for decision in live(liveness, 101.0, 119.0) if decision == Revive("new", 1)] == []
    assert Revive("new", 1) in live(liveness, 120.0, 121.0)


def test_a_node_that_is_taken_out_is_not_revived() -> None:
    liveness = machine()
    live(liveness, 0.0, 10.0)
    liveness.expect({}, 10.0)
    assert watch(liveness, 10.0, 10.0 + 3 * TIMEOUT) == []
    assert beat(liveness, 10.0 + 3 * TIMEOUT) == []
    assert liveness.nodes(10.0 + 3 * TIMEOUT) == []


def test_expecting_the_same_nodes_again_changes_nothing() -> None:
    liveness, other = machine(), machine()
    for now in range(100):
        liveness.expect({"p": "pipeline"}, float(now))
        assert liveness.tick(float(now)) == other.tick(float(now))
        assert liveness.nodes(float(now)) == other.nodes(float(now))


def test_a_name_that_stands_for_another_kind_is_another_node() -> None:
    liveness = machine()
    live(liveness, 0.0, 10.0)
    liveness.expect({"p": "gateway"}, 10.0)
    assert (node(liveness, 10.0).kind, node(liveness, 10.0).state) == ("gateway", "starting")

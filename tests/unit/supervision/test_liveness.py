"""Liveness by examples: which nodes are dead, when they are revived, and which heartbeats count."""

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
    """Tick every second up to and including `until`; returns times and decisions."""
    times = [start + i for i in range(int(until - start) + 1)]
    return [(now, decision) for now in times for decision in liveness.tick(now)]


def live(liveness: Liveness, start: float, until: float, epoch: int = 1) -> list[Decision]:
    """Tick every second, with a heartbeat every other second; returns the decisions."""
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


def test_a_node_with_regular_heartbeats_is_never_revived() -> None:
    assert live(machine(), 0.0, 500.0) == []


def test_a_failure_is_the_alarm_of_a_live_node_and_uses_no_revival_attempt() -> None:
    liveness = machine()
    liveness.on_heartbeat("p", "pipeline", 1, 100, None, 0.0, "no space left")
    assert (node(liveness, 1.0).state, node(liveness, 1.0).alarm) == ("alive", "no space left")
    assert watch(liveness, 1.0, TIMEOUT - 1) == []
    assert (node(liveness, TIMEOUT).state, node(liveness, TIMEOUT).alarm) == ("dead", None)
    decisions = [decision for _, decision in watch(liveness, TIMEOUT, 200.0)]
    assert decisions == [Revive("p", 1), Revive("p", 2), ALARM]
    assert node(liveness, 200.0).alarm == ALARM.reason


def test_a_heartbeat_before_a_late_tick_keeps_the_node_alive() -> None:
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


def test_attempts_back_off_and_end_in_one_alarm() -> None:
    decided = watch(machine(), 0.0, 500.0)
    assert decided == [
        (TIMEOUT, Revive("p", 1)),
        (TIMEOUT + FIRST, Revive("p", 2)),
        (TIMEOUT + 3 * FIRST, ALARM),
    ]


def test_the_backoff_is_bounded() -> None:
    backoff = Backoff(10.0, 2.0, 30.0)
    assert [backoff.after(attempt) for attempt in (1, 2, 3, 4)] == [10.0, 20.0, 30.0, 30.0]


def test_a_heartbeat_after_the_alarm_is_a_recovery() -> None:
    liveness = machine()
    watch(liveness, 0.0, 100.0)
    assert (node(liveness, 100.0).state, node(liveness, 100.0).alarm) == ("dead", ALARM.reason)
    assert beat(liveness, 101.0) == [Recovered("p")]
    assert beat(liveness, 102.0) == []
    assert (node(liveness, 102.0).state, node(liveness, 102.0).alarm) == ("alive", None)


def test_a_heartbeat_after_a_revival_is_a_recovery() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    liveness.on_revived("p", TIMEOUT)
    assert beat(liveness, TIMEOUT + 2, epoch=2) == [Recovered("p")]


def test_a_stable_node_gets_all_revival_attempts_again() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT + FIRST)
    begun = TIMEOUT + FIRST + 1
    assert live(liveness, begun, begun + STABLE) == [Recovered("p")]
    silent = begun + STABLE
    decided = watch(liveness, silent + 1, silent + TIMEOUT)
    assert decided == [(silent + TIMEOUT, Revive("p", 1))]


def test_a_node_that_dies_again_soon_gets_only_the_remaining_attempts() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT + FIRST)
    beat(liveness, 31.0)
    assert watch(liveness, 32.0, 31.0 + TIMEOUT) == [(31.0 + TIMEOUT, ALARM)]


def test_a_manual_revival_after_the_alarm_raises_no_second_alarm() -> None:
    liveness = machine()
    watch(liveness, 0.0, 100.0)
    liveness.on_revived("p", 101.0)
    assert node(liveness, 101.0).state == "starting"
    assert watch(liveness, 102.0, 300.0) == []
    assert node(liveness, 300.0).state == "dead"


def test_a_given_up_node_is_not_revived_until_it_sends_a_heartbeat() -> None:
    liveness = machine()
    liveness.tick(0.0)
    liveness.give_up("p", "no heartbeat")
    liveness.give_up("unknown", "no heartbeat")
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


def test_with_a_revive_limit_of_zero_the_alarm_comes_at_the_timeout() -> None:
    decided = watch(machine(revive_limit=0), 0.0, 100.0)
    assert decided == [(TIMEOUT, Alarm("p", "no heartbeat after 0 attempts to revive it"))]


def test_a_heartbeat_before_the_revival_is_reported_keeps_the_node_alive() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    beat(liveness, TIMEOUT + 1)
    liveness.on_revived("p", TIMEOUT + 2)
    assert node(liveness, TIMEOUT + 2).state == "alive"


# -- heartbeats that do not count


def test_heartbeats_of_a_replaced_process_do_not_count() -> None:
    liveness = machine()
    beat(liveness, 0.0, epoch=2, pid=200)
    decided = []
    for i in range(1, 21):
        beat(liveness, float(i), epoch=1, pid=100)
        decided += liveness.tick(float(i))
    assert decided == [Revive("p", 1)]
    assert (node(liveness, 20.0).epoch, node(liveness, 20.0).pid) == (2, 200)


def test_reordered_heartbeats_of_two_processes_keep_the_higher_epoch() -> None:
    liveness = machine()
    for epoch in (1, 2, 1, 2, 1):
        assert beat(liveness, 1.0, epoch, pid=100 + epoch) == []
    record = node(liveness, 1.0)
    assert (record.state, record.epoch, record.pid) == ("alive", 2, 102)


def test_heartbeats_of_unknown_nodes_or_of_another_kind_do_not_count() -> None:
    liveness = machine()
    liveness.tick(0.0)
    for now in (5.0, 10.0, 15.0):
        assert liveness.on_heartbeat("unknown", "gateway", 1, 1, None, now) == []
        assert liveness.on_heartbeat("p", "gateway", 1, 1, None, now) == []
    liveness.on_stopped("unknown")
    liveness.on_revived("unknown", 15.0)
    assert liveness.tick(TIMEOUT) == [Revive("p", 1)]


# -- stops on purpose


def test_a_node_stopped_on_purpose_is_not_revived() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    liveness.on_stopped("p")
    assert watch(liveness, 1.0, 200.0) == []
    assert (node(liveness, 200.0).state, node(liveness, 200.0).since) == ("stopped", 0.0)


def test_a_fresh_machine_does_not_revive_a_node_recorded_as_stopped() -> None:
    liveness = machine()
    liveness.on_stopped("p")
    assert watch(liveness, 0.0, 200.0) == []


def test_a_late_heartbeat_of_a_stopped_process_is_ignored() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    liveness.on_stopped("p")
    assert beat(liveness, 1.0) == []
    assert node(liveness, 1.0).state == "stopped"


def test_a_heartbeat_of_a_new_process_after_a_stop_counts_at_once() -> None:
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


def test_the_lease_of_the_stopped_process_does_not_count_as_a_restart() -> None:
    liveness = machine()
    liveness.on_stopped("p", 3)
    liveness.on_taken_over("p", 3, 1.0)
    assert watch(liveness, 1.0, 200.0) == []


def test_a_new_lease_moves_no_deadline_of_a_node_that_is_not_stopped() -> None:
    liveness = machine()
    beat(liveness, 0.0, epoch=1)
    assert watch(liveness, 1.0, TIMEOUT - 1) == []
    liveness.on_taken_over("p", 2, TIMEOUT - 1)
    assert watch(liveness, TIMEOUT, TIMEOUT) == [(TIMEOUT, Revive("p", 1))]


def test_continued_heartbeats_override_a_reported_stop() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    liveness.on_stopped("p")
    live(liveness, 1.0, TIMEOUT + 2)
    assert node(liveness, TIMEOUT + 2).state == "alive"


def test_a_revival_reported_after_a_stop_does_not_undo_the_stop() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    liveness.on_stopped("p")
    liveness.on_revived("p", TIMEOUT + 1)
    assert watch(liveness, TIMEOUT + 2, 200.0) == []


# -- pauses and clock jumps


def test_a_pause_of_the_monitor_does_not_count_as_silence_of_nodes() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    watch(liveness, 1.0, 15.0)
    resumed = 1000.0
    rest = TIMEOUT - 15.0
    assert watch(liveness, resumed, resumed + rest) == [(resumed + rest, Revive("p", 1))]


def test_a_pause_does_not_shorten_the_time_to_start() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    assert watch(liveness, 1000.0, 1000.0 + FIRST) == [(1000.0 + FIRST, Revive("p", 2))]


def test_a_first_heartbeat_after_a_pause_extends_the_deadline_by_one_timeout() -> None:
    liveness = machine()
    liveness.tick(0.0)
    beat(liveness, 1000.0)
    assert watch(liveness, 1000.0, 1000.0 + TIMEOUT) == [(1000.0 + TIMEOUT, Revive("p", 1))]


def test_a_pause_does_not_count_as_stable_time() -> None:
    liveness = machine()
    watch(liveness, 0.0, TIMEOUT)
    beat(liveness, 21.0)
    beat(liveness, 1000.0)
    assert watch(liveness, 1001.0, 1000.0 + TIMEOUT) == [(1000.0 + TIMEOUT, Revive("p", 2))]


def test_reading_the_nodes_does_not_count_as_observed_time() -> None:
    """A monitor without the bus does not tick, but its nodes may still be read."""
    liveness = machine()
    beat(liveness, 0.0)
    for i in range(100):
        assert node(liveness, float(i)).state == "alive"
    assert liveness.tick(100.0) == []


def test_setting_the_expected_nodes_does_not_count_as_observed_time() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    for i in range(100):
        liveness.expect({"p": "pipeline"}, float(i))
    assert liveness.tick(100.0) == []


def test_extended_deadlines_are_a_full_timeout() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    watch(liveness, 1.0, 15.0)
    liveness.extend_deadlines(1000.0)
    assert watch(liveness, 1000.0, 1000.0 + TIMEOUT) == [(1000.0 + TIMEOUT, Revive("p", 1))]


def test_deadlines_of_stopped_nodes_are_not_extended() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    liveness.on_stopped("p")
    watch(liveness, 1.0, 15.0)
    liveness.extend_deadlines(15.0)
    watch(liveness, 16.0, TIMEOUT)
    beat(liveness, TIMEOUT)
    assert node(liveness, TIMEOUT).state == "alive", "its heartbeats override the stop"


def test_a_large_clock_jump_back_keeps_the_remaining_timeout() -> None:
    liveness = machine()
    beat(liveness, 10_000.0)
    watch(liveness, 10_001.0, 10_005.0)
    assert watch(liveness, 0.0, TIMEOUT) == [(TIMEOUT - 5.0, Revive("p", 1))]


def test_a_small_clock_jump_back_is_ignored() -> None:
    liveness = machine()
    beat(liveness, 10.0)
    assert beat(liveness, 9.5) == []
    assert liveness.tick(9.0) == []
    assert watch(liveness, 10.0, 10.0 + TIMEOUT) == [(10.0 + TIMEOUT, Revive("p", 1))]


# -- node records


def test_records_are_in_the_order_of_the_configuration() -> None:
    liveness = Liveness({"m": "monitor", "g": "gateway"})
    liveness.tick(0.0)
    liveness.on_heartbeat("g", "gateway", 3, 42, "http://127.0.0.1:8440", 1.0)
    assert liveness.nodes(2.0) == [
        NodeRecord("m", "monitor", None, None, "starting", 0.0, 0),
        NodeRecord("g", "gateway", 42, "http://127.0.0.1:8440", "alive", 1.0, 3),
    ]


def test_a_node_past_its_deadline_is_shown_dead_before_the_next_tick() -> None:
    liveness = machine()
    beat(liveness, 0.0)
    watch(liveness, 1.0, TIMEOUT - 1)
    assert (node(liveness, 21.0).state, node(liveness, 21.0).since) == ("dead", TIMEOUT)
    assert liveness.tick(21.0) == [Revive("p", 1)]


# -- changes of the expected nodes


def test_an_added_node_is_revived_after_a_full_timeout() -> None:
    liveness = machine()
    live(liveness, 0.0, 100.0)
    liveness.expect({"p": "pipeline", "new": "gateway"}, 100.0)
    assert [(each.name, each.state) for each in liveness.nodes(100.0)] == [
        ("p", "alive"),
        ("new", "starting"),
    ]
    assert [decision for decision in live(liveness, 101.0, 119.0) if decision == Revive("new", 1)] == []
    assert Revive("new", 1) in live(liveness, 120.0, 121.0)


def test_a_removed_node_is_not_revived() -> None:
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


def test_a_name_with_another_kind_is_a_new_node() -> None:
    liveness = machine()
    live(liveness, 0.0, 10.0)
    liveness.expect({"p": "gateway"}, 10.0)
    assert (node(liveness, 10.0).kind, node(liveness, 10.0).state) == ("gateway", "starting")


def test_a_node_on_an_unreachable_machine_is_revived_for_as_long_as_it_takes_and_raises_an_alarm() -> None:
    liveness = Liveness({"p": "pipeline"}, timeout_seconds=TIMEOUT, revive_limit=2)
    liveness.tick(0.0)
    now, revivals = 0.0, 0
    for _ in range(200):
        now += 1.0
        for decision in liveness.tick(now):
            assert isinstance(decision, Revive)
            revivals += 1
            liveness.on_unreachable("p", now, "exit code 255: no route")
    assert revivals > 15
    [node] = liveness.nodes(now)
    assert (node.state, node.alarm) == ("dead", "its machine cannot be reached: exit code 255: no route")
    liveness.on_heartbeat("p", "pipeline", 1, 7, None, now + 1, host="h1")
    [node] = liveness.nodes(now + 1)
    assert (node.state, node.alarm, node.host) == ("alive", None, "h1")


def test_the_alarm_of_a_node_names_why_it_could_not_be_revived() -> None:
    liveness = Liveness({"p": "pipeline"}, timeout_seconds=TIMEOUT, revive_limit=1, pause_seconds=60.0)
    liveness.tick(0.0)
    liveness.tick(TIMEOUT)
    liveness.on_revived("p", TIMEOUT + 1, "exit code 2: kopi: h1: no such file")
    [alarm] = liveness.tick(TIMEOUT + 20)
    reason = "no heartbeat after 1 attempts to revive it: exit code 2: kopi: h1: no such file"
    assert alarm == Alarm("p", reason)

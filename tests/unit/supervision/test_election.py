"""The bully election by examples, from the view of one monitor."""

from kopitiam.supervision.election import (
    Bully,
    SendAnnouncement,
    SendAnswer,
    SendElection,
    State,
    StepDown,
    TakeEpoch,
)

ANSWER, COORDINATOR, LEADER = 1.0, 3.0, 10.0
IDS = frozenset({1, 2, 3})


def monitor(my_id: int) -> Bully:
    return Bully(my_id, IDS, ANSWER, COORDINATOR, LEADER)


def follower(my_id: int, leader: int, epoch: int = 5, now: float = 0.0) -> Bully:
    bully = monitor(my_id)
    assert bully.on_announcement(leader, epoch, now) == []
    assert bully.state is State.FOLLOWER
    return bully


def leader(my_id: int, epoch: int = 5) -> Bully:
    bully = monitor(my_id)
    bully.tick(0.0)
    assert bully.on_epoch_granted(epoch, 0.0) == [SendAnnouncement(epoch)]
    return bully


def view(bully: Bully) -> tuple[State, int | None, int]:
    return bully.state, bully.leader, bully.epoch


# -- elections


def test_a_starting_monitor_sends_election_to_higher_ids() -> None:
    bully = monitor(1)
    assert bully.tick(0.0) == [SendElection((2, 3))]
    assert view(bully) == (State.CANDIDATE, None, 0)


def test_the_highest_monitor_requests_an_epoch_at_once() -> None:
    bully = monitor(3)
    assert bully.tick(0.0) == [TakeEpoch()]
    assert bully.state is State.CANDIDATE


def test_a_candidate_without_an_answer_leads_once_it_has_an_epoch() -> None:
    bully = monitor(2)
    bully.tick(0.0)
    assert bully.tick(ANSWER - 0.1) == []
    assert bully.tick(ANSWER) == [TakeEpoch()]
    assert bully.state is State.CANDIDATE
    assert bully.on_epoch_granted(7, ANSWER) == [SendAnnouncement(7)]
    assert view(bully) == (State.LEADER, 2, 7)


def test_a_candidate_that_is_answered_waits_and_then_follows() -> None:
    bully = monitor(1)
    bully.tick(0.0)
    assert bully.on_answer(3, 0.5) == []
    assert bully.state is State.WAITING
    assert bully.tick(ANSWER) == []
    assert bully.on_announcement(3, 4, 1.0) == []
    assert view(bully) == (State.FOLLOWER, 3, 4)


def test_an_election_is_repeated_if_no_leader_announces_itself() -> None:
    bully = monitor(1)
    bully.tick(0.0)
    bully.on_answer(2, 0.5)
    assert bully.tick(0.5 + COORDINATOR - 0.1) == []
    assert bully.tick(0.5 + COORDINATOR) == [SendElection((2, 3))]


def test_an_election_is_repeated_if_the_registry_does_not_reply() -> None:
    bully = monitor(3)
    bully.tick(0.0)
    assert bully.tick(COORDINATOR - 0.1) == []
    assert bully.tick(COORDINATOR) == [TakeEpoch()]


def test_a_late_answer_changes_nothing() -> None:
    leading, following = leader(2), follower(1, leader=2)
    assert leading.on_answer(3, 1.0) == following.on_answer(3, 1.0) == []
    assert (leading.state, following.state) == (State.LEADER, State.FOLLOWER)


def test_an_answer_from_a_lower_id_is_ignored() -> None:
    bully = monitor(2)
    bully.tick(0.0)
    bully.on_answer(1, 0.5)
    assert bully.tick(ANSWER) == [TakeEpoch()]


def test_every_election_goes_to_higher_ids_before_the_registry() -> None:
    bully = monitor(2)
    actions = [bully.tick(0.0), bully.tick(ANSWER), bully.tick(ANSWER + COORDINATOR)]
    assert actions == [[SendElection((3,))], [TakeEpoch()], [SendElection((3,))]]
    assert bully.tick(2 * ANSWER + COORDINATOR) == [TakeEpoch()]


def test_a_monitor_answers_a_lower_id_and_starts_its_own_election() -> None:
    assert monitor(2).on_election(1, 0.0) == [SendAnswer(1), SendElection((3,))]


def test_an_election_from_a_higher_id_is_ignored() -> None:
    bully = monitor(1)
    assert bully.on_election(2, 0.0) == []
    assert view(bully) == (State.FOLLOWER, None, 0)


def test_a_candidate_does_not_restart_its_election() -> None:
    bully = monitor(2)
    bully.tick(0.0)
    assert bully.on_election(1, 0.5) == [SendAnswer(1)]
    assert bully.tick(ANSWER) == [TakeEpoch()]


def test_a_leader_answers_and_announces_itself() -> None:
    bully = leader(3)
    assert bully.on_election(1, 1.0) == [SendAnswer(1), SendAnnouncement(5)]
    assert bully.state is State.LEADER


def test_a_follower_of_a_live_leader_answers_without_an_election() -> None:
    bully = follower(2, leader=3)
    assert bully.on_election(1, 1.0) == [SendAnswer(1)]
    assert view(bully) == (State.FOLLOWER, 3, 5)


# -- loss and change of the leader


def test_an_election_starts_when_announcements_stop() -> None:
    bully = follower(2, leader=3)
    bully.on_announcement(3, 5, 4.0)
    assert bully.tick(4.0 + LEADER - 0.1) == []
    assert bully.tick(4.0 + LEADER) == [SendElection((3,))]
    assert bully.leader is None


def test_an_election_starts_at_once_when_the_leader_stops_on_purpose() -> None:
    bully = follower(1, leader=3)
    assert bully.on_leader_left(3, 1.0) == [SendElection((2, 3))]
    assert view(bully) == (State.CANDIDATE, None, 5)


def test_a_stop_of_a_monitor_that_does_not_lead_changes_nothing() -> None:
    following, leading = follower(1, leader=3), leader(2)
    assert following.on_leader_left(2, 1.0) == leading.on_leader_left(2, 1.0) == []
    assert (following.state, leading.state) == (State.FOLLOWER, State.LEADER)


def test_after_a_bus_outage_a_monitor_waits_for_announcements_before_an_election() -> None:
    bully = monitor(2)
    bully.tick(0.0)
    assert bully.on_bus_restored(50.0) == []
    assert bully.tick(50.0 + LEADER - 0.1) == []
    assert bully.tick(50.0 + LEADER) == [SendElection((3,))]
    leading = leader(3)
    assert leading.on_bus_restored(50.0) == []
    assert leading.state is State.LEADER


def test_a_lower_epoch_is_ignored() -> None:
    bully = follower(1, leader=2, epoch=5)
    assert bully.on_announcement(3, 4, 9.0) == []
    assert view(bully) == (State.FOLLOWER, 2, 5)
    assert bully.tick(LEADER) == [SendElection((2, 3))], "it does not extend the leader's timeout either"


def test_a_leader_steps_down_on_a_higher_epoch() -> None:
    bully = leader(2, epoch=5)
    assert bully.on_announcement(3, 6, 1.0) == [StepDown()]
    assert view(bully) == (State.FOLLOWER, 3, 6)


def test_a_leader_ignores_announcements_of_its_own_epoch() -> None:
    bully = leader(2, epoch=5)
    assert bully.on_announcement(3, 5, 1.0) == []
    assert bully.on_announcement(2, 5, 1.0) == []
    assert view(bully) == (State.LEADER, 2, 5)


def test_a_restarted_higher_monitor_takes_over() -> None:
    returning, leading = monitor(3), leader(2, epoch=5)
    assert returning.tick(100.0) == [TakeEpoch()]
    assert returning.on_epoch_granted(6, 100.0) == [SendAnnouncement(6)]
    assert leading.on_announcement(3, 6, 100.0) == [StepDown()]
    assert view(leading) == (State.FOLLOWER, 3, 6)


def test_a_higher_monitor_does_not_follow_a_lower_one() -> None:
    bully = monitor(3)
    assert bully.on_announcement(2, 5, 0.0) == [TakeEpoch()]
    assert view(bully) == (State.CANDIDATE, 2, 5)


def test_announcements_of_a_lower_leader_do_not_delay_the_election() -> None:
    bully = monitor(2)
    bully.on_announcement(1, 5, 0.0)
    assert bully.on_announcement(1, 5, 0.5) == []
    assert bully.tick(ANSWER) == [TakeEpoch()]


def test_a_higher_monitor_superseded_during_a_pause_takes_the_lead_back() -> None:
    bully = leader(3, epoch=5)
    assert bully.on_announcement(2, 6, 50.0) == [StepDown(), TakeEpoch()]
    assert bully.on_epoch_granted(7, 50.0) == [SendAnnouncement(7)]


def test_unknown_ids_are_ignored() -> None:
    bully = follower(2, leader=3)
    assert bully.on_announcement(9, 99, 0.0) == []
    assert bully.on_election(0, 0.0) == []
    assert view(bully) == (State.FOLLOWER, 3, 5)


# -- the registry


def test_a_leader_that_lost_its_epoch_steps_down_and_starts_an_election() -> None:
    assert leader(3).on_epoch_lost(9.0) == [StepDown(), TakeEpoch()]
    assert leader(2).on_epoch_lost(9.0) == [StepDown(), SendElection((3,))]


def test_a_follower_ignores_a_lost_epoch() -> None:
    assert follower(2, leader=3).on_epoch_lost(1.0) == []


def test_a_refused_epoch_is_requested_again_after_a_timeout() -> None:
    bully = monitor(3)
    bully.tick(0.0)
    assert bully.on_epoch_refused(0.1) == []
    assert bully.state is State.WAITING
    assert bully.tick(0.1 + COORDINATOR - 0.1) == []
    assert bully.tick(0.1 + COORDINATOR) == [TakeEpoch()]


def test_a_monitor_without_a_registry_lets_a_lower_one_lead() -> None:
    bully = monitor(3)
    bully.tick(0.0)
    bully.on_epoch_refused(0.0)
    assert bully.on_election(2, 0.5) == []
    assert bully.on_announcement(2, 6, 1.0) == []
    assert bully.leader == 2
    assert bully.tick(COORDINATOR) == [TakeEpoch()], "but it tries again"
    assert bully.on_epoch_granted(7, COORDINATOR) == [SendAnnouncement(7)]
    assert bully.on_election(2, 4.0) == [SendAnswer(2), SendAnnouncement(7)]


def test_a_late_refusal_changes_nothing() -> None:
    bully = leader(2)
    assert bully.on_epoch_refused(1.0) == []
    assert bully.state is State.LEADER


def test_a_grant_with_a_higher_epoch_wins_over_an_announcement_before_it() -> None:
    """The registry granted it later, so no other monitor can lead now."""
    bully = monitor(2)
    bully.tick(0.0)
    bully.tick(ANSWER)
    bully.on_announcement(3, 6, 1.5)
    assert bully.on_epoch_granted(7, 2.0) == [SendAnnouncement(7)]
    assert bully.state is State.LEADER


def test_a_grant_of_a_lower_epoch_is_ignored() -> None:
    bully = follower(2, leader=3, epoch=6)
    assert bully.on_epoch_granted(5, 1.0) == []
    assert view(bully) == (State.FOLLOWER, 3, 6)


def test_the_higher_of_two_grants_holds() -> None:
    bully = leader(3, epoch=5)
    assert bully.on_epoch_granted(5, 1.0) == []
    assert bully.on_epoch_granted(6, 1.0) == [SendAnnouncement(6)]
    assert bully.on_epoch_granted(5, 1.0) == []
    assert bully.epoch == 6

"""Bully by examples, as one monitor plays it."""

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


def known(bully: Bully) -> tuple[State, int | None, int]:
    return bully.state, bully.leader, bully.epoch


# -- an election


def test_whoever_starts_asks_those_with_higher_ids() -> None:
    bully = monitor(1)
    assert bully.tick(0.0) == [SendElection((2, 3))]
    assert known(bully) == (State.CANDIDATE, None, 0)


def test_the_highest_asks_nobody_but_the_registry() -> None:
    bully = monitor(3)
    assert bully.tick(0.0) == [TakeEpoch()]
    assert bully.state is State.CANDIDATE


def test_a_candidate_that_hears_no_answer_leads_once_it_has_an_epoch() -> None:
    bully = monitor(2)
    bully.tick(0.0)
    assert bully.tick(ANSWER - 0.1) == []
    assert bully.tick(ANSWER) == [TakeEpoch()]
    assert bully.state is State.CANDIDATE
    assert bully.on_epoch_granted(7, ANSWER) == [SendAnnouncement(7)]
    assert known(bully) == (State.LEADER, 2, 7)


def test_a_candidate_that_is_answered_waits_and_then_follows() -> None:
    bully = monitor(1)
    bully.tick(0.0)
    assert bully.on_answer(3, 0.5) == []
    assert bully.state is State.WAITING
    assert bully.tick(ANSWER) == []
    assert bully.on_announcement(3, 4, 1.0) == []
    assert known(bully) == (State.FOLLOWER, 3, 4)


def test_an_election_begins_again_if_nobody_says_that_he_leads() -> None:
    bully = monitor(1)
    bully.tick(0.0)
    bully.on_answer(2, 0.5)
    assert bully.tick(0.5 + COORDINATOR - 0.1) == []
    assert bully.tick(0.5 + COORDINATOR) == [SendElection((2, 3))]


def test_an_election_begins_again_if_the_registry_says_nothing() -> None:
    bully = monitor(3)
    bully.tick(0.0)
    assert bully.tick(COORDINATOR - 0.1) == []
    assert bully.tick(COORDINATOR) == [TakeEpoch()]


def test_an_answer_that_comes_late_changes_nothing() -> None:
    leading, following = leader(2), follower(1, leader=2)
    assert leading.on_answer(3, 1.0) == following.on_answer(3, 1.0) == []
    assert (leading.state, following.state) == (State.LEADER, State.FOLLOWER)


def test_only_those_with_higher_ids_can_answer() -> None:
    bully = monitor(2)
    bully.tick(0.0)
    bully.on_answer(1, 0.5)
    assert bully.tick(ANSWER) == [TakeEpoch()]


def test_every_election_asks_the_higher_ones_before_the_registry() -> None:
    bully = monitor(2)
    asked = [bully.tick(0.0), bully.tick(ANSWER), bully.tick(ANSWER + COORDINATOR)]
    assert asked == [[SendElection((3,))], [TakeEpoch()], [SendElection((3,))]]
    assert bully.tick(2 * ANSWER + COORDINATOR) == [TakeEpoch()]


def test_a_higher_one_answers_and_holds_its_own_election() -> None:
    assert monitor(2).on_election(1, 0.0) == [SendAnswer(1), SendElection((3,))]


def test_a_lower_one_is_not_meant() -> None:
    bully = monitor(1)
    assert bully.on_election(2, 0.0) == []
    assert known(bully) == (State.FOLLOWER, None, 0)


def test_an_election_under_way_is_not_begun_twice() -> None:
    bully = monitor(2)
    bully.tick(0.0)
    assert bully.on_election(1, 0.5) == [SendAnswer(1)]
    assert bully.tick(ANSWER) == [TakeEpoch()]


def test_a_leader_answers_that_it_leads() -> None:
    bully = leader(3)
    assert bully.on_election(1, 1.0) == [SendAnswer(1), SendAnnouncement(5)]
    assert bully.state is State.LEADER


def test_a_follower_of_a_living_leader_answers_and_elects_nobody() -> None:
    bully = follower(2, leader=3)
    assert bully.on_election(1, 1.0) == [SendAnswer(1)]
    assert known(bully) == (State.FOLLOWER, 3, 5)


# -- the leader's life and death


def test_an_election_begins_when_nothing_is_heard_of_the_leader() -> None:
    bully = follower(2, leader=3)
    bully.on_announcement(3, 5, 4.0)
    assert bully.tick(4.0 + LEADER - 0.1) == []
    assert bully.tick(4.0 + LEADER) == [SendElection((3,))]
    assert bully.leader is None


def test_when_the_leader_says_goodbye_an_election_begins_at_once() -> None:
    bully = follower(1, leader=3)
    assert bully.on_leader_left(3, 1.0) == [SendElection((2, 3))]
    assert known(bully) == (State.CANDIDATE, None, 5)


def test_the_goodbye_of_one_that_does_not_lead_changes_nothing() -> None:
    following, leading = follower(1, leader=3), leader(2)
    assert following.on_leader_left(2, 1.0) == leading.on_leader_left(2, 1.0) == []
    assert (following.state, leading.state) == (State.FOLLOWER, State.LEADER)


def test_whoever_hears_again_listens_for_a_leader_before_it_elects() -> None:
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
    assert known(bully) == (State.FOLLOWER, 2, 5)
    assert bully.tick(LEADER) == [SendElection((2, 3))], "it is no sign of life either"


def test_a_leader_that_learns_of_a_higher_epoch_steps_down() -> None:
    bully = leader(2, epoch=5)
    assert bully.on_announcement(3, 6, 1.0) == [StepDown()]
    assert known(bully) == (State.FOLLOWER, 3, 6)


def test_a_leader_is_not_moved_by_its_own_epoch() -> None:
    bully = leader(2, epoch=5)
    assert bully.on_announcement(3, 5, 1.0) == []
    assert bully.on_announcement(2, 5, 1.0) == []
    assert known(bully) == (State.LEADER, 2, 5)


def test_a_returning_higher_one_takes_over() -> None:
    returning, leading = monitor(3), leader(2, epoch=5)
    assert returning.tick(100.0) == [TakeEpoch()]
    assert returning.on_epoch_granted(6, 100.0) == [SendAnnouncement(6)]
    assert leading.on_announcement(3, 6, 100.0) == [StepDown()]
    assert known(leading) == (State.FOLLOWER, 3, 6)


def test_a_higher_one_does_not_follow_a_lower_one() -> None:
    bully = monitor(3)
    assert bully.on_announcement(2, 5, 0.0) == [TakeEpoch()]
    assert known(bully) == (State.CANDIDATE, 2, 5)


def test_a_lower_leader_that_goes_on_does_not_hold_up_the_election() -> None:
    bully = monitor(2)
    bully.on_announcement(1, 5, 0.0)
    assert bully.on_announcement(1, 5, 0.5) == []
    assert bully.tick(ANSWER) == [TakeEpoch()]


def test_a_higher_one_that_was_superseded_while_it_slept_takes_the_lead_back() -> None:
    bully = leader(3, epoch=5)
    assert bully.on_announcement(2, 6, 50.0) == [StepDown(), TakeEpoch()]
    assert bully.on_epoch_granted(7, 50.0) == [SendAnnouncement(7)]


def test_strangers_are_ignored() -> None:
    bully = follower(2, leader=3)
    assert bully.on_announcement(9, 99, 0.0) == []
    assert bully.on_election(0, 0.0) == []
    assert known(bully) == (State.FOLLOWER, 3, 5)


# -- the registry


def test_a_leader_that_lost_its_epoch_steps_down_and_asks_again() -> None:
    assert leader(3).on_epoch_lost(9.0) == [StepDown(), TakeEpoch()]
    assert leader(2).on_epoch_lost(9.0) == [StepDown(), SendElection((3,))]


def test_only_a_leader_can_lose_its_epoch() -> None:
    assert follower(2, leader=3).on_epoch_lost(1.0) == []


def test_without_a_registry_one_asks_again_but_not_at_once() -> None:
    bully = monitor(3)
    bully.tick(0.0)
    assert bully.on_epoch_refused(0.1) == []
    assert bully.state is State.WAITING
    assert bully.tick(0.1 + COORDINATOR - 0.1) == []
    assert bully.tick(0.1 + COORDINATOR) == [TakeEpoch()]


def test_whoever_cannot_reach_the_registry_lets_a_lower_one_lead() -> None:
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


def test_a_grant_counts_even_if_another_was_heard_of_meanwhile() -> None:
    """The registry granted it after that one's: nobody else can lead now."""
    bully = monitor(2)
    bully.tick(0.0)
    bully.tick(ANSWER)
    bully.on_announcement(3, 6, 1.5)
    assert bully.on_epoch_granted(7, 2.0) == [SendAnnouncement(7)]
    assert bully.state is State.LEADER


def test_a_grant_that_is_behind_is_worth_nothing() -> None:
    bully = follower(2, leader=3, epoch=6)
    assert bully.on_epoch_granted(5, 1.0) == []
    assert known(bully) == (State.FOLLOWER, 3, 6)


def test_of_two_grants_the_later_one_holds() -> None:
    bully = leader(3, epoch=5)
    assert bully.on_epoch_granted(5, 1.0) == []
    assert bully.on_epoch_granted(6, 1.0) == [SendAnnouncement(6)]
    assert bully.on_epoch_granted(5, 1.0) == []
    assert bully.epoch == 6

"""A queue delivers each message to one of its consumers, and stores it while there is none."""

import logging
import threading

from bus_inbox import PATIENCE_SECONDS, Inbox, after_stop_request, numbered_message

from kopitiam.bus.delivery import MAX_REDELIVERIES


def test_messages_of_one_sender_arrive_in_order(node) -> None:
    inbox, sender = Inbox(), node()
    node().consume("work", inbox)
    for number in range(100):
        sender.send("work", numbered_message(number))
    assert inbox.wait_for(99) == list(range(100))


def test_each_message_goes_to_one_consumer(node) -> None:
    inbox, sender = Inbox(), node()
    for _ in range(3):
        node().consume("work", inbox)
    for number in range(60):
        sender.send("work", numbered_message(number))
    assert sorted(inbox.wait_for(*range(60))) == list(range(60))


def test_consumers_work_at_the_same_time(node) -> None:
    inbox, sender = Inbox(), node()
    both_are_at_work = threading.Barrier(2)

    def handle(message) -> None:
        both_are_at_work.wait(PATIENCE_SECONDS)
        inbox(message)

    node().consume("work", handle)
    node().consume("work", handle)
    sender.send("work", numbered_message(0))
    sender.send("work", numbered_message(1))
    assert sorted(inbox.wait_for(0, 1)) == [0, 1]


def test_messages_are_stored_while_there_is_no_consumer(node) -> None:
    sender = node()
    for number in range(5):
        sender.send("work", numbered_message(number))
    inbox = Inbox()
    node().consume("work", inbox)
    assert inbox.wait_for(4) == [0, 1, 2, 3, 4]


def test_queues_do_not_mix(node) -> None:
    inbox, others, bus = Inbox(), Inbox(), node()
    bus.consume("work", inbox)
    bus.consume("work.other", others)
    bus.send("work.other", numbered_message(1))
    bus.send("work", numbered_message(2))
    assert (inbox.wait_for(2), others.wait_for(1)) == ([2], [1])


def test_unhandled_messages_of_a_cancelled_consumer_go_to_another(node) -> None:
    is_at_work, may_go_on = threading.Event(), threading.Event()
    early, late, bus = Inbox(), Inbox(), node()

    def handle(message) -> None:
        is_at_work.set()
        may_go_on.wait(PATIENCE_SECONDS)
        early(message)

    subscription = bus.consume("work", handle)
    for number in range(3):
        bus.send("work", numbered_message(number))
    assert is_at_work.wait(PATIENCE_SECONDS)
    with after_stop_request(may_go_on.set):
        subscription.cancel()

    node().consume("work", late)
    assert late.wait_for(1, 2) == [1, 2]
    assert early.numbers == [0]


def test_a_message_whose_handler_fails_is_redelivered(node) -> None:
    inbox, bus, failures = Inbox(), node(), [OSError("first"), OSError("second")]

    def handle(message) -> None:
        if failures:
            raise failures.pop(0)
        inbox(message)

    bus.consume("work", handle)
    bus.send("work", numbered_message(1))
    bus.send("work", numbered_message(2))
    assert inbox.wait_for(1, 2) == [1, 2]
    assert not failures


def test_a_message_whose_handler_always_fails_is_dropped_in_the_end(node, caplog) -> None:
    tries, inbox, bus = [], Inbox(), node()

    def handle(message) -> None:
        if message == numbered_message(1):
            tries.append(message)
            raise ValueError("never")
        inbox(message)

    bus.consume("work", handle)
    bus.send("work", numbered_message(1))
    bus.send("work", numbered_message(2))
    assert inbox.wait_for(2) == [2]
    assert len(tries) == 1 + MAX_REDELIVERIES
    dropped = [record for record in caplog.records if "dropped after 4 tries" in record.getMessage()]
    assert [record.levelno for record in dropped] == [logging.ERROR]


def test_a_message_that_fails_at_one_consumer_is_redelivered_to_another(node) -> None:
    inbox, sender = Inbox(), node()
    is_broken = threading.Event()

    def break_down(message) -> None:
        is_broken.set()
        raise OSError("no disk")

    node().consume("work", break_down)
    sender.send("work", numbered_message(1))
    assert is_broken.wait(PATIENCE_SECONDS)
    node().consume("work", inbox)
    inbox.wait_for(1)

"""Threads on one bus: concurrent senders, handlers that use the bus, and cancelling and closing."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from bus_inbox import PATIENCE_SECONDS, Inbox, after_stop_request, numbered_message

from kopitiam.contracts.errors import BusUnavailable

SENDERS, EACH = 8, 200


def bus_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("bus ")}


def test_nothing_is_lost_when_many_threads_send_at_once(node) -> None:
    inbox, bus = Inbox(), node()
    node().consume("work", inbox)

    def send(sender: int) -> None:
        for number in range(EACH):
            bus.send("work", numbered_message(sender * EACH + number))

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send, range(SENDERS)))
    come = inbox.wait_for(*range(SENDERS * EACH))
    assert len(come) == SENDERS * EACH
    for sender in range(SENDERS):
        mine = [number for number in come if number // EACH == sender]
        assert mine == sorted(mine)


def test_a_handler_may_send_publish_and_subscribe(node) -> None:
    inbox, bus = Inbox(), node()

    def pass_on(message) -> None:
        bus.subscribe("done", inbox)
        bus.send("next", message)

    bus.consume("work", pass_on)
    bus.consume("next", lambda message: bus.publish("done", message))
    bus.send("work", numbered_message(1))
    assert inbox.wait_for(1) == [1]


def test_a_handler_may_cancel_itself_and_its_message_counts_as_handled(node) -> None:
    inbox, bus = Inbox(), node()
    is_subscribed = threading.Event()

    def once(message) -> None:
        is_subscribed.wait(PATIENCE_SECONDS)
        subscription.cancel()
        inbox(message)

    for number in range(3):
        bus.send("work", numbered_message(number))
    subscription = bus.consume("work", once)
    is_subscribed.set()
    inbox.wait_for(0)
    rest = Inbox()
    node().consume("work", rest)
    assert rest.wait_for(1, 2) == [1, 2]
    assert inbox.numbers == [0]


@pytest.mark.parametrize("begin", ["consume", "subscribe", "listen"])
def test_cancelling_waits_for_the_handler_and_no_other_call_follows(node, begin) -> None:
    bus = node()
    is_at_work, calls = threading.Event(), []

    def handle(message) -> None:
        is_at_work.set()
        may_go_on.wait(PATIENCE_SECONDS)
        calls.append(message)

    may_go_on = threading.Event()
    subscription = bus.listen(handle) if begin == "listen" else getattr(bus, begin)("work", handle)
    put: Callable[[int], None] = {
        "consume": lambda number: bus.send("work", numbered_message(number)),
        "subscribe": lambda number: bus.publish("work", numbered_message(number)),
        "listen": lambda number: bus.broadcast(numbered_message(number)),
    }[begin]
    put(0)
    assert is_at_work.wait(PATIENCE_SECONDS)
    put(1)
    with after_stop_request(may_go_on.set):
        subscription.cancel()
    assert calls == [numbered_message(0)]
    put(2)
    subscription.cancel()
    bus.close()
    assert calls == [numbered_message(0)]


def test_a_handler_may_close_the_bus(node) -> None:
    bus, is_closed = node(), threading.Event()

    def handle(message) -> None:
        bus.close()
        is_closed.set()

    bus.listen(handle)
    bus.broadcast(numbered_message(1))
    assert is_closed.wait(PATIENCE_SECONDS)
    with pytest.raises(BusUnavailable, match="closed"):
        bus.broadcast(numbered_message(2))


def test_a_closed_bus_refuses_everything_at_once_and_leaves_no_threads(node) -> None:
    before = bus_threads()
    bus, inbox = node(), Inbox()
    bus.consume("work", inbox)
    bus.subscribe("news", inbox)
    bus.listen(inbox)
    bus.check()
    bus.close()
    bus.close()
    assert bus_threads() <= before
    refused = [
        bus.check,
        lambda: bus.send("work", numbered_message(1)),
        lambda: bus.publish("news", numbered_message(1)),
        lambda: bus.broadcast(numbered_message(1)),
        lambda: bus.consume("work", inbox),
        lambda: bus.subscribe("news", inbox),
        lambda: bus.listen(inbox),
    ]
    started = time.monotonic()
    for call in refused:
        with pytest.raises(BusUnavailable, match="closed"):
            call()
    assert time.monotonic() - started < 2
    assert bus_threads() <= before
    assert inbox.numbers == []


def test_a_close_ends_all_concurrent_senders_with_an_error(node) -> None:
    bus, kept = node(), []
    are_under_way = threading.Semaphore(0)

    def send_until_refused(sender: int) -> int:
        while True:
            try:
                bus.send("work", numbered_message(len(kept)))
            except BusUnavailable:
                return sender
            kept.append(sender)
            are_under_way.release()

    with ThreadPoolExecutor(SENDERS + 2) as pool:
        sending = [pool.submit(send_until_refused, sender) for sender in range(SENDERS)]
        for _ in range(2 * SENDERS):
            assert are_under_way.acquire(timeout=PATIENCE_SECONDS)
        closing = [pool.submit(bus.close) for _ in range(2)]
        assert [task.result(PATIENCE_SECONDS) for task in sending] == list(range(SENDERS))
        assert [task.result(PATIENCE_SECONDS) for task in closing] == [None, None]


@pytest.mark.parametrize("name", ["", "x" * 201, "é" * 101])
def test_a_name_that_is_invalid_in_amqp_is_refused(node, name) -> None:
    bus, inbox = node(), Inbox()
    calls = [
        lambda: bus.send(name, numbered_message(1)),
        lambda: bus.publish(name, numbered_message(1)),
        lambda: bus.consume(name, inbox),
        lambda: bus.subscribe(name, inbox),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="200 bytes"):
            call()


def test_the_longest_names_work(node) -> None:
    bus, inbox = node(), Inbox()
    bus.consume("q" * 200, inbox)
    bus.subscribe("t" * 200, inbox)
    bus.send("q" * 200, numbered_message(1))
    bus.publish("t" * 200, numbered_message(2))
    assert sorted(inbox.wait_for(1, 2)) == [1, 2]

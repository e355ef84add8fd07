"""The in-memory bus: bounded queues, cancelled subscriptions, closing."""

import logging
import threading

import pytest

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.errors import BusUnavailable
from kopitiam.contracts.messages import Election
from waiting import PATIENCE_SECONDS


@pytest.fixture
def bus():
    bus = MemoryBus(limit=3)
    yield bus
    bus.close()


@pytest.mark.parametrize("route", ["topic", "broadcast"])
def test_a_slow_subscriber_loses_the_oldest_messages_and_one_warning_is_logged(bus, route, caplog) -> None:
    is_stuck, may_go_on, is_last, received = threading.Event(), threading.Event(), threading.Event(), []

    def handle(message) -> None:
        is_stuck.set()
        may_go_on.wait(PATIENCE_SECONDS)
        received.append(message.sender)
        if message.sender == 5:
            is_last.set()

    def publish(number: int) -> None:
        message = Election(sender=number)
        bus.publish("news", message) if route == "topic" else bus.broadcast(message)

    bus.subscribe("news", handle) if route == "topic" else bus.listen(handle)
    publish(0)
    assert is_stuck.wait(PATIENCE_SECONDS)
    for number in range(1, 6):
        publish(number)
    may_go_on.set()
    assert is_last.wait(PATIENCE_SECONDS)
    assert received == [0, 3, 4, 5]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_full_queue_refuses_new_messages_and_keeps_the_queued_ones(bus) -> None:
    for number in range(3):
        bus.send("work", Election(sender=number))
    with pytest.raises(BusUnavailable, match="full"):
        bus.send("work", Election(sender=3))
    is_last, received = threading.Event(), []

    def handle(message) -> None:
        received.append(message.sender)
        if message.sender == 4:
            is_last.set()

    bus.consume("work", handle)
    while True:
        try:
            bus.send("work", Election(sender=4))
            break
        except BusUnavailable:
            continue
    assert is_last.wait(PATIENCE_SECONDS)
    assert received == [0, 1, 2, 4]


def test_a_cancelled_subscription_leaves_no_thread(bus) -> None:
    threads = threading.active_count()
    subscriptions = [
        bus.consume("work", lambda _: None),
        bus.subscribe("#", lambda _: None),
        bus.listen(lambda _: None),
    ]
    assert threading.active_count() == threads + 3
    for subscription in subscriptions:
        subscription.cancel()
    assert threading.active_count() == threads
    bus.send("work", Election(sender=1))
    bus.publish("news", Election(sender=1))
    bus.broadcast(Election(sender=1))


def test_closing_waits_only_a_limited_time_for_a_handler_that_hangs(bus, monkeypatch) -> None:
    monkeypatch.setattr("kopitiam.bus.memory._CLOSE_SECONDS", 0.1)
    is_stuck, may_go_on, has_returned = threading.Event(), threading.Event(), threading.Event()

    def hang(_) -> None:
        is_stuck.set()
        may_go_on.wait(PATIENCE_SECONDS)
        has_returned.set()

    bus.listen(hang)
    bus.broadcast(Election(sender=1))
    assert is_stuck.wait(PATIENCE_SECONDS)
    bus.close()
    assert not has_returned.is_set()
    may_go_on.set()

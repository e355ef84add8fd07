"""What piles up in memory is bounded."""

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


@pytest.mark.parametrize("way", ["topic", "broadcast"])
def test_a_subscriber_that_does_not_keep_up_loses_the_oldest_and_one_line_says_so(bus, way, caplog) -> None:
    is_stuck, may_go_on, is_last, got = threading.Event(), threading.Event(), threading.Event(), []

    def handle(message) -> None:
        is_stuck.set()
        may_go_on.wait(PATIENCE_SECONDS)
        got.append(message.sender)
        if message.sender == 5:
            is_last.set()

    def put(number: int) -> None:
        message = Election(sender=number)
        bus.publish("news", message) if way == "topic" else bus.broadcast(message)

    bus.subscribe("news", handle) if way == "topic" else bus.listen(handle)
    put(0)
    assert is_stuck.wait(PATIENCE_SECONDS)
    for number in range(1, 6):
        put(number)
    may_go_on.set()
    assert is_last.wait(PATIENCE_SECONDS)
    assert got == [0, 3, 4, 5]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_full_queue_refuses_and_what_it_has_is_kept(bus) -> None:
    for number in range(3):
        bus.send("work", Election(sender=number))
    with pytest.raises(BusUnavailable, match="full"):
        bus.send("work", Election(sender=3))
    is_last, got = threading.Event(), []

    def handle(message) -> None:
        got.append(message.sender)
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
    assert got == [0, 1, 2, 4]


def test_a_consumer_that_is_gone_leaves_no_trace(bus) -> None:
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


def test_a_handler_that_hangs_holds_up_a_close_only_for_a_while(bus, monkeypatch) -> None:
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

"""A topic reaches every subscriber whose pattern matches, a broadcast every listener."""

import threading

import msgspec
import pytest
from bus_inbox import PATIENCE_SECONDS, Inbox, letter

from kopitiam.contracts.messages import Election

TOPICS = {
    "a": {"a", "*", "#", "a.#", "#.a"},
    "a.b": {"#", "a.*", "*.b", "*.*", "a.#", "a.b", "#.b", "a.#.b"},
    "a.b.c": {"#", "a.#", "a.*.c", "#.c", "*.*.*", "*.#.c"},
    "a.x.y.b": {"#", "a.#", "#.b", "a.#.b"},
    "b": {"*", "#", "#.b"},
    "a..b": {"#", "a.#", "#.b", "a.*.b", "a.#.b", "*.*.*"},
}
PATTERNS = sorted(set.union(*TOPICS.values()))


class Newer(msgspec.Struct, tag_field="type", tag="NEWER"):
    """From a version to come."""

    v: int = 1


class OtherVersion(msgspec.Struct, tag_field="type", tag="ELECTION"):
    sender: int = 7
    v: int = 2


class MoreFields(msgspec.Struct, tag_field="type", tag="ELECTION"):
    sender: int = 7
    more: int = 1
    v: int = 1


STRANGE = [msgspec.Raw(b"\xff{oops"), msgspec.Raw(b"[]"), Newer(), OtherVersion(), MoreFields()]


def test_every_subscriber_gets_every_message_in_order(node) -> None:
    inboxes, sender = [Inbox(), Inbox(), Inbox()], node()
    for inbox in inboxes:
        node().subscribe("news.*", inbox)
    for number in range(50):
        sender.publish("news.local", letter(number))
    assert [inbox.wait_for(49) for inbox in inboxes] == [list(range(50))] * 3


def test_patterns_mean_what_they_mean_in_amqp(node) -> None:
    inboxes, bus = {pattern: Inbox() for pattern in PATTERNS}, node()
    for pattern, inbox in inboxes.items():
        bus.subscribe(pattern, inbox)
    last = len(TOPICS)
    for number, topic in enumerate(TOPICS):
        bus.publish(topic, letter(number))
    for pattern, inbox in inboxes.items():  # each is told by a topic of its own that no more will come
        bus.publish(pattern.replace("*", "a").replace("#", "a"), letter(last))
        inbox.wait_for(last)

    heard = {
        topic: {pattern for pattern, inbox in inboxes.items() if number in inbox.numbers}
        for number, topic in enumerate(TOPICS)
    }
    assert heard == TOPICS


def test_only_those_who_subscribe_in_time_hear_it(node) -> None:
    inbox, bus = Inbox(), node()
    bus.publish("news", letter(1))
    subscription = bus.subscribe("news", inbox)
    bus.publish("news", letter(2))
    inbox.wait_for(2)
    subscription.cancel()
    bus.publish("news", letter(3))
    again = Inbox()
    bus.subscribe("news", again)
    bus.publish("news", letter(4))
    again.wait_for(4)
    assert (inbox.numbers, again.numbers) == ([2], [4])


def test_a_broadcast_reaches_every_listener_and_only_them(node) -> None:
    inboxes, sender = [Inbox(), Inbox(), Inbox()], node()
    deaf = Inbox()
    sender.subscribe("#", deaf)
    sender.consume("broadcast", deaf)
    for bus, inbox in zip((sender, node(), node()), inboxes, strict=True):
        bus.listen(inbox)
    for number in range(20):
        sender.broadcast(letter(number))
    assert [inbox.wait_for(19) for inbox in inboxes] == [list(range(20))] * 3
    sender.publish("end", letter(99))
    assert deaf.wait_for(99) == [99]


@pytest.mark.parametrize("way", ["queue", "topic", "broadcast"])
def test_what_cannot_be_read_is_dropped_and_the_next_one_arrives(node, way, caplog) -> None:
    inbox, bus = Inbox(), node()
    put = {
        "queue": lambda message: bus.send("work", message),
        "topic": lambda message: bus.publish("news", message),
        "broadcast": bus.broadcast,
    }[way]
    if way == "queue":
        bus.consume("work", inbox)
    elif way == "topic":
        bus.subscribe("news", inbox)
    else:
        bus.listen(inbox)
    for number, strange in enumerate(STRANGE):
        put(strange)
        put(letter(number))
    assert inbox.wait_for(len(STRANGE) - 1) == list(range(len(STRANGE)))
    assert sum("not a message" in record.getMessage() for record in caplog.records) == len(STRANGE)


def test_a_handler_that_fails_is_not_asked_again_but_gets_the_next_one(node, caplog) -> None:
    inbox, bus = Inbox(), node()

    def handle(message) -> None:
        inbox(message)
        raise ValueError("as always")

    bus.subscribe("news", handle)
    bus.publish("news", letter(1))
    bus.publish("news", letter(2))
    assert inbox.wait_for(2) == [1, 2]


def test_a_slow_handler_delays_nobody_else(node) -> None:
    quick, bus, may_go_on = Inbox(), node(), threading.Event()
    slow = Inbox()

    def take_long(message) -> None:
        may_go_on.wait(PATIENCE_SECONDS)
        slow(message)

    bus.subscribe("news", take_long)
    bus.subscribe("news", quick)
    for number in range(10):
        bus.publish("news", letter(number))
    assert quick.wait_for(9) == list(range(10))
    assert slow.numbers == []
    may_go_on.set()
    assert slow.wait_for(9) == list(range(10))


def test_messages_are_copies_not_the_sender_s_objects(node) -> None:
    got, bus = [], node()
    inbox = Inbox()
    bus.subscribe("news", lambda message: (got.append(message), inbox(message)))
    sent = Election(sender=1)
    bus.publish("news", sent)
    inbox.wait_for(1)
    assert got == [sent]
    assert got[0] is not sent

"""A topic reaches every subscriber whose pattern matches; a broadcast reaches every listener."""

import threading

import msgspec
import pytest
from bus_inbox import PATIENCE_SECONDS, Inbox, numbered_message

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
    """A message of a later version."""

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
        sender.publish("news.local", numbered_message(number))
    assert [inbox.wait_for(49) for inbox in inboxes] == [list(range(50))] * 3


def test_patterns_match_as_in_amqp(node) -> None:
    inboxes, bus = {pattern: Inbox() for pattern in PATTERNS}, node()
    for pattern, inbox in inboxes.items():
        bus.subscribe(pattern, inbox)
    last = len(TOPICS)
    for number, topic in enumerate(TOPICS):
        bus.publish(topic, numbered_message(number))
    for pattern, inbox in inboxes.items():  # a message on a topic of its own marks the end of each
        bus.publish(pattern.replace("*", "a").replace("#", "a"), numbered_message(last))
        inbox.wait_for(last)

    received = {
        topic: {pattern for pattern, inbox in inboxes.items() if number in inbox.numbers}
        for number, topic in enumerate(TOPICS)
    }
    assert received == TOPICS


def test_a_topic_reaches_only_subscriptions_that_exist_when_it_is_published(node) -> None:
    inbox, bus = Inbox(), node()
    bus.publish("news", numbered_message(1))
    subscription = bus.subscribe("news", inbox)
    bus.publish("news", numbered_message(2))
    inbox.wait_for(2)
    subscription.cancel()
    bus.publish("news", numbered_message(3))
    again = Inbox()
    bus.subscribe("news", again)
    bus.publish("news", numbered_message(4))
    again.wait_for(4)
    assert (inbox.numbers, again.numbers) == ([2], [4])


def test_a_broadcast_reaches_every_listener_and_only_them(node) -> None:
    inboxes, sender = [Inbox(), Inbox(), Inbox()], node()
    topic_inbox = Inbox()
    sender.subscribe("#", topic_inbox)
    sender.consume("broadcast", topic_inbox)
    for bus, inbox in zip((sender, node(), node()), inboxes, strict=True):
        bus.listen(inbox)
    for number in range(20):
        sender.broadcast(numbered_message(number))
    assert [inbox.wait_for(19) for inbox in inboxes] == [list(range(20))] * 3
    sender.publish("end", numbered_message(99))
    assert topic_inbox.wait_for(99) == [99]


@pytest.mark.parametrize("way", ["queue", "topic", "broadcast"])
def test_an_undecodable_message_is_dropped_and_the_next_one_arrives(node, way, caplog) -> None:
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
        put(numbered_message(number))
    assert inbox.wait_for(len(STRANGE) - 1) == list(range(len(STRANGE)))
    assert sum("not a message" in record.getMessage() for record in caplog.records) == len(STRANGE)


def test_a_failed_topic_message_is_not_redelivered_and_the_next_one_arrives(node, caplog) -> None:
    inbox, bus = Inbox(), node()

    def handle(message) -> None:
        inbox(message)
        raise ValueError("as always")

    bus.subscribe("news", handle)
    bus.publish("news", numbered_message(1))
    bus.publish("news", numbered_message(2))
    assert inbox.wait_for(2) == [1, 2]


def test_a_slow_handler_delays_no_other_subscription(node) -> None:
    quick, bus, may_go_on = Inbox(), node(), threading.Event()
    slow = Inbox()

    def take_long(message) -> None:
        may_go_on.wait(PATIENCE_SECONDS)
        slow(message)

    bus.subscribe("news", take_long)
    bus.subscribe("news", quick)
    for number in range(10):
        bus.publish("news", numbered_message(number))
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

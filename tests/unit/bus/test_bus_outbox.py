"""The outbox: queues messages while the bus is unavailable, without blocking its callers."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from kopitiam.bus.outbox import Outbox
from kopitiam.contracts.errors import BusUnavailable

SOON_SECONDS = 10


class BlockedBus:
    """Blocks every send until it is available."""

    def __init__(self) -> None:
        self.is_available = threading.Event()
        self.is_called = threading.Event()
        self.sent: list[tuple[str, frozenset[int]]] = []
        self.is_done = threading.Event()

    def send(self, key: str, value: frozenset[int]) -> None:
        self.is_called.set()
        self.is_available.wait(SOON_SECONDS)
        self.sent.append((key, value))
        if key == "last":
            self.is_done.set()


@pytest.fixture
def bus() -> Iterator[BlockedBus]:
    blocked = BlockedBus()
    yield blocked
    blocked.is_available.set()


def test_put_does_not_block_and_entries_with_the_same_key_are_merged(bus: BlockedBus):
    with closing(Outbox("test", bus.send, merge=lambda old, new: old | new)) as outbox:
        outbox.put("first", frozenset({0}))
        assert bus.is_called.wait(SOON_SECONDS)
        for number in range(5):
            outbox.put("run", frozenset({number}))
        outbox.put("last", frozenset())
        assert bus.sent == []
        bus.is_available.set()
        assert bus.is_done.wait(SOON_SECONDS)
    assert bus.sent == [("first", {0}), ("run", {0, 1, 2, 3, 4}), ("last", frozenset())]


def test_a_full_outbox_drops_its_oldest_entry(bus: BlockedBus):
    with closing(Outbox("test", bus.send, most=2)) as outbox:
        outbox.put("first", frozenset())
        assert bus.is_called.wait(SOON_SECONDS)
        for key in ("dropped", "kept", "last"):
            outbox.put(key, frozenset())
        bus.is_available.set()
        assert bus.is_done.wait(SOON_SECONDS)
    assert [key for key, _ in bus.sent] == ["first", "kept", "last"]


@pytest.mark.parametrize("error", [BusUnavailable("unavailable"), ValueError("invalid")])
def test_an_entry_that_fails_does_not_block_the_next_one(error: Exception):
    is_sent = threading.Event()

    def send(key: str, _: None) -> None:
        if key == "bad":
            raise error
        is_sent.set()

    with closing(Outbox("test", send)) as outbox:
        outbox.put("bad", None)
        outbox.put("good", None)
        assert is_sent.wait(SOON_SECONDS)


def test_closing_sends_waiting_entries_and_later_ones_are_ignored():
    sent: list[str] = []
    outbox: Outbox[str, None] = Outbox("test", lambda key, _: sent.append(key))
    outbox.put("one", None)
    outbox.close()
    outbox.put("two", None)
    assert sent == ["one"]

"""Forwards packets between two network cards, late, at a limited rate, and not all of them.

    python slow_link.py CARD CARD DELAY_SECONDS LOSS BYTES_PER_SECOND SEED

It runs in the network namespace of a bridge, between the bridge and the port of a machine, and prints a line
when it is ready. The kernel's own `netem` does the same, where there is one.
"""

import heapq
import random
import select
import socket
import sys
import time
from contextlib import suppress

_EVERY_PROTOCOL = 3
_OUTGOING = 4  # a packet that this process sent
_MOST_BYTES = 65536
_MOST_AT_ONCE = 64
_BUFFER_SECONDS = 1.0  # packets that would wait longer for the rate are lost, as in a router


def forward(names: list[str], delay: float, loss: float, rate: float, seed: str) -> None:
    cards = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL)) for _ in names]
    for card, name in zip(cards, names, strict=True):
        card.bind((name, 0))
        card.setblocking(False)
    chance = random.Random(seed)
    waiting: list[tuple[float, int, int, bytes]] = []  # due, number, card, packet
    is_free_at, number = [0.0, 0.0], 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select(cards, [], [], pause)
        for source in map(cards.index, ready):
            for packet in _received(cards[source]):
                now = time.monotonic()
                starts = max(now, is_free_at[source])
                if chance.random() < loss or starts > now + _BUFFER_SECONDS:
                    continue
                is_free_at[source] = starts + len(packet) / rate
                number += 1
                heapq.heappush(waiting, (is_free_at[source] + delay, number, 1 - source, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(waiting)
            with suppress(OSError):  # the machine is off
                cards[target].send(packet)


def _received(card: socket.socket) -> list[bytes]:
    packets: list[bytes] = []
    with suppress(BlockingIOError):
        while len(packets) < _MOST_AT_ONCE:
            packet, address = card.recvfrom(_MOST_BYTES)
            if address[2] != _OUTGOING:
                packets.append(packet)
    return packets


if __name__ == "__main__":
    forward(sys.argv[1:3], *map(float, sys.argv[3:6]), seed=sys.argv[6])

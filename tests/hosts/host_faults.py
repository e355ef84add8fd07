"""Faults of machines and of the network between them: which ones there are, and how they are made."""

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from host_fleets import CLIENTS, HOSTS, HostFleet
from lan import Direction, Slowness

Moment = Literal["upload", "election", "seal", "final"]
SECONDS = (5, 30, 120)
MOMENTS: tuple[Moment, ...] = ("election", "seal", "final")
MACHINES = sorted({*HOSTS.values(), CLIENTS})
MEMBERS = sorted(set(HOSTS.values()))
SLOWNESSES = (
    Slowness(),
    Slowness(delay_seconds=0.2, loss=0.05, bytes_per_second=250_000),
    Slowness(delay_seconds=0.5, loss=0.01, bytes_per_second=4_000_000),
)
_STORM_SECONDS = (5, 10)  # shorter and longer than the heartbeat timeout of a test fleet
_ONE_WAY_SECONDS = _MOMENT_SECONDS = _SLOW_SECONDS = 30


@dataclass(frozen=True)
class Cut:
    """A machine is cut off from `other`, or from all others."""

    machine: str
    other: str | None = None
    direction: Direction = "both"
    seconds: int = 30
    moment: Moment = "upload"

    def __str__(self) -> str:
        way = {"both": "⊘", "in": "←⊘", "out": "⊘→"}[self.direction]
        return f"{self.machine}{way}{self.other or 'all'} {self.seconds} s{_when(self.moment)}"

    @contextlib.contextmanager
    def made(self, fleet: HostFleet) -> Iterator[None]:
        lan = fleet.lan
        with (
            lan.parted([self.machine], [self.other], self.direction)
            if self.other
            else lan.isolated(self.machine, self.direction)
        ):
            yield


@dataclass(frozen=True)
class SlowLink:
    """The link of a machine is slow and loses packets."""

    machine: str
    slowness: Slowness
    seconds: int = _SLOW_SECONDS
    moment: Moment = "upload"

    def __str__(self) -> str:
        return f"{self.machine} slow ({self.slowness}) {self.seconds} s{_when(self.moment)}"

    @contextlib.contextmanager
    def made(self, fleet: HostFleet) -> Iterator[None]:
        with fleet.lan.slowed(self.machine, self.slowness):
            yield


@dataclass(frozen=True)
class PowerOff:
    """A machine is powered off, and replaced by a new one with the same name and an empty disk. That of
    PostgreSQL gets its disk back: no other machine has the registry."""

    machine: str
    seconds: int = 0
    moment: Moment = "upload"

    def __str__(self) -> str:
        return f"{self.machine} off and replaced after {self.seconds} s{_when(self.moment)}"

    @contextlib.contextmanager
    def made(self, fleet: HostFleet) -> Iterator[None]:
        fleet.power_off(self.machine)
        yield
        fleet.machine(self.machine).boot()


Fault = Cut | SlowLink | PowerOff


def _when(moment: Moment) -> str:
    return "" if moment == "upload" else f", {moment}"


def all_cuts() -> list[Cut]:
    """Each machine and each pair for each time, in one direction only for half a minute, and each machine at
    each special moment."""
    targets: list[tuple[str, str | None]] = [(name, None) for name in MACHINES]
    targets += list(itertools.combinations(MACHINES, 2))
    ways: tuple[Direction, ...] = ("in", "out")
    whole = [Cut(*target, seconds=seconds) for target in targets for seconds in SECONDS]
    one_way = [Cut(*target, way, _ONE_WAY_SECONDS) for target in targets for way in ways]
    moments = [Cut(name, None, "both", _MOMENT_SECONDS, moment) for name in MACHINES for moment in MOMENTS]
    return [*whole, *one_way, *moments]


def all_slow_links() -> list[SlowLink]:
    return [SlowLink(name, slowness) for name in MACHINES for slowness in SLOWNESSES]


def all_power_offs() -> list[PowerOff]:
    """Each machine that runs nodes, at once and at each special moment."""
    moments: tuple[Moment, ...] = ("upload", *MOMENTS)
    return [PowerOff(name, moment=moment) for name in MEMBERS for moment in moments]


def sampled_faults(faults: list[Fault], seed: object, count: int) -> list[Fault]:
    """A few of them; each machine comes before any comes again."""
    chance = random.Random(str(seed))
    shuffled = chance.sample(faults, len(faults))
    by_machine = [[fault for fault in shuffled if fault.machine == name] for name in MACHINES]
    in_turns = [fault for group in itertools.zip_longest(*by_machine) for fault in group if fault]
    return in_turns[:count]


def storm(seed: int) -> list[Fault]:
    """One fault for every machine, in an order drawn by the seed: two machines are replaced, one has a slow
    link, the others are cut off. An election, the seal and the final step are hit as well."""
    chance = random.Random(f"storm {seed}")
    names = chance.sample(MACHINES, len(MACHINES))
    replaced = chance.sample([name for name in names if name != CLIENTS], 2)
    slow = chance.choice([name for name in names if name not in replaced])
    faults: list[Fault] = []
    for name in names:
        if name in replaced:
            faults.append(PowerOff(name))
        elif name == slow:
            faults.append(SlowLink(name, chance.choice(SLOWNESSES), max(_STORM_SECONDS)))
        else:
            direction: Direction = chance.choice(("both", "in", "out"))
            faults.append(Cut(name, None, direction, chance.choice(_STORM_SECONDS)))
    moments: list[Moment] = ["upload"] * (len(names) - len(MOMENTS)) + list(MOMENTS)
    return [replace(fault, moment=moment) for fault, moment in zip(faults, moments, strict=True)]

"""The catalog of faults. A fault that raises an error counts as a missed target; the others still run."""

import importlib
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tools.reliability.measurements import Measurement
from tools.reliability.scenes import Session


@dataclass(frozen=True)
class Fault:
    """`place` is `module:function` in this package, imported when the fault runs."""

    place: str
    summary: str


FAULTS = {
    "crash-points": Fault("crashes:crash_points", "kill -9 at each crash point"),
    "landed-chunks": Fault("damage:landed_chunks", "torn and flipped bytes in landed chunks"),
    "partials": Fault("damage:partials", "torn and flipped bytes in partials"),
    "result-files": Fault("damage:result_files", "torn and flipped bytes in result files"),
    "checkpoints": Fault("damage:checkpoints", "torn and flipped bytes in Spark's checkpoint"),
    "registry-pages": Fault("damage:registry_pages", "damaged root pages of the registry"),
    "full-disk": Fault("full_disks:full_disks", "a full disk under each folder of the home"),
    "power-cut": Fault("power_cuts:power_cuts", "a power cut: only synced bytes and names survive"),
    "slow-senders": Fault(
        "senders:slow_senders", "clients that send a byte at a time, and half request heads"
    ),
    "poison-bodies": Fault("senders:poison_bodies", "bodies made to crash or exhaust the gateway"),
    "poison-run": Fault("engines:poison_run", "a run whose final step kills the JVM each time"),
    "stopped-jvm": Fault("engines:stopped_jvm", "SIGSTOP to the JVM"),
    "registry-moved": Fault("registries:moved_and_swapped", "a registry moved away or swapped"),
    "clocks": Fault("fleet_faults:clocks", "node clocks off by seconds to an hour, or jumping"),
    "monitor-points": Fault("fleet_faults:monitor_points", "kill -9 at each crash point of monitors"),
    "kills": Fault("fleet_faults:kills", "kopi chaos kills nodes and services of a fleet"),
    "partition": Fault("partitions:partition", "PostgreSQL behind dropped packets"),
    "cuts": Fault("machine_faults:cuts", "machines cut off from each other"),
    "slow-links": Fault("machine_faults:slow_links", "slow and lossy links of machines"),
    "lost-machines": Fault("machine_faults:lost_machines", "machines powered off and replaced"),
    "storms": Fault("machine_faults:storms", "a fault of every machine while four clients upload"),
    "growth": Fault("machine_faults:growth", "a machine added and taken away under load"),
    "many-runs": Fault("endurance:many_runs", "small runs one after another"),
    "many-clients": Fault("endurance:many_clients", "many clients at once, for minutes"),
}


def run_fault(name: str, session: Session) -> Iterator[Measurement]:
    """Runs the fault and yields its measurements. One that cannot run here is `skipped`, with the reason."""
    fault = FAULTS[name]
    begun = time.monotonic()
    try:
        module, _, function = fault.place.partition(":")
        measure = getattr(importlib.import_module(f"tools.reliability.{module}"), function)
        for measurement in measure(session):
            notes = tuple(_without_folder(note, session) for note in measurement.notes)
            yield replace(measurement, notes=notes, seconds=time.monotonic() - begun)
            begun = time.monotonic()
    except pytest.skip.Exception as reason:
        yield Measurement(fault.summary, "not at all", session.seed, skipped=str(reason))
    except (Exception, pytest.fail.Exception) as error:
        session.say(traceback.format_exc())
        text = _without_folder(str(error).strip().partition("\n")[0][:300], session)
        yield Measurement(
            fault.summary, "broke off", session.seed, error=f"broke off: {type(error).__name__}: {text}"
        )


def _without_folder(text: str, session: Session) -> str:
    """Keeps folders of this machine out of the page."""
    return text.replace(str(session.folder), "…")

"""Renders measurements as docs/reliability.md."""

from collections.abc import Sequence
from dataclasses import dataclass

from tools.reliability.measurements import Measurement, Verdict

_HEAD = """\
# Reliability

Faults that were run against the real product, and what was measured. `make reliability` wrote this file; every figure
comes from that one run. `make test` runs a small sample of the same faults.

{facts}

| fault | how often | seed | measured | target | verdict |
|---|---|---|---|---|---|
"""
_WORDS = """
## What the figures mean
| figure | meaning |
|---|---|
| rows lost, rows double | rows that were sent and are missing from a finished run, or are there more than once: by the rows of each table in its status, and by the transactions in the answer to question 1 |
| wrong answers | answer files of finished runs that differ by a byte from answers computed without the product |
| runs wrongly ended | runs that failed or were ended although nothing was wrong with them |
| to notice | seconds from the fault until the service says so: `/readyz`, a refused call, or the state of a node |
| to recover | seconds from the end of the fault, or from the start of the next process, until it serves or answers again |
| longest call | the slowest call of a client that did nothing wrong |
| peak memory | the largest resident set of a single Python process of the service, sampled 20 times a second |
| growth | the slope of a least-squares line over the second half of the samples |

**How each fault is made.**
- *Crash points*: `KOPI_CRASH_AT` kills `kopi serve` as by `kill -9`, once at each point; the next start carries on, on the same home.
- *Torn and flipped bytes*: while the service is down one file is cut at a random place, or bits, 64 bytes or a block in it change.
- *Full disks*: one folder of the home is on a small tmpfs that is filled to the last byte, and later emptied.
- *Power cuts*: a shim records every `fsync` of the service and its JVM with the content of the file or folder, and each
  acknowledgement sent. The home is then rebuilt as it was on the disk at a moment: only synced bytes under synced names.
- *Stopped or killed JVM*: SIGSTOP and SIGKILL to Spark's process, while runs are under way.
- *Clocks*: a shim moves the wall clock of one node of a fleet with RabbitMQ and PostgreSQL.
- *Partition*: nftables drops all packets to and from PostgreSQL, inside a network namespace.
"""


@dataclass(frozen=True)
class Origin:
    """Where and when the figures were measured; nothing that identifies the machine."""

    date: str
    version: str
    cores: int
    memory_gigabytes: float
    seconds: float
    is_sample: bool
    parameters: str
    not_run: tuple[str, ...] = ()  # names of faults

    def __str__(self) -> str:
        size = "a sample" if self.is_sample else "the full set"
        return (
            f"Measured {self.date} with version {self.version} on {self.cores} cores and "
            f"{self.memory_gigabytes:.0f} GB of memory, {size} ({self.parameters}), "
            f"in {self.seconds / 60:.0f} minutes."
            + (f" Not run: {', '.join(self.not_run)}." if self.not_run else "")
        )


def render(measurements: Sequence[Measurement], origin: Origin) -> str:
    """The whole page. Missed targets and faults that were not measured are listed below the table."""
    counts = {verdict: sum(each.verdict is verdict for each in measurements) for verdict in Verdict}
    summary = ", ".join(f"{count} {verdict.value.strip('*')}" for verdict, count in counts.items() if count)
    text = _HEAD.format(facts=f"{origin} Verdicts: {summary}.")
    text += "".join(f"{_row(each)}\n" for each in measurements)
    missed = [f"- **{each.fault}**: {words}\n" for each in measurements for words in each.missed]
    if missed:
        text += "\n## Missed targets\n" + "".join(missed)
    skipped = [f"- **{each.fault}**: {each.skipped}\n" for each in measurements if each.skipped]
    if skipped:
        text += "\n## Not measured\n" + "".join(skipped)
    notes = [f"- **{each.fault}**: {note}\n" for each in measurements for note in each.notes]
    if notes:
        text += "\n## Notes\n" + "".join(notes)
    return text + _WORDS


def _row(each: Measurement) -> str:
    measured = "; ".join(figure.measured for figure in each.figures) or "–"
    targets = "; ".join(figure.target for figure in each.figures if figure.target) or "–"
    cells = (each.fault, each.times, str(each.seed), measured, targets, each.verdict.value)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

"""Renders results as docs/reliability.md."""

from collections.abc import Mapping, Sequence

from tools.reliability.measurements import Measurement, Verdict
from tools.reliability.results import Result

_HEAD = """\
# Reliability

This page lists the faults that were run against the real product, and the figures measured. `make reliability` writes it from
`docs/reliability.json`, which holds the newest result of each fault. Run one fault with
`make reliability FAULTS="--only clocks"`. `make test` runs a small sample of the same faults.

{facts}

| fault | how often | seed | measured | target | verdict |
|---|---|---|---|---|---|
"""
_WORDS = """
## What the figures mean
| figure | meaning |
|---|---|
| rows lost, rows double | rows sent that are missing from a finished run, or are in it more than once; counted by the rows of each table in its status, and by the transactions in the answer to question 1 |
| wrong answers | answer files of finished runs that differ by a byte from answers computed without the product |
| runs wrongly ended | runs that failed or were ended although nothing was wrong with them |
| to notice | seconds from the fault until the service reports it: by `/readyz`, a refused call, or the state of a node. For a full disk below results: from the end of the upload, when answers are first written |
| to recover | seconds from the end of the fault, or from the start of the next process, until it serves or answers again |
| longest call | the slowest call of a well-behaved client |
| peak memory | the largest sum over all processes of the service at one moment, sampled ten times a second: Python's processes together, and Spark's JVM. Pages that processes share count once. Peaks shorter than a tenth of a second may be missed |
| to work again | seconds from the end of the fault of a machine until all chunks, ENDs or answers that were due are there |
| growth | the slope of a least-squares line over the second half of the samples |

**How each fault is made.**
- *Crash points*: `KOPI_CRASH_AT` kills `kopi serve` like `kill -9`, once at each point; the next start uses the same home.
- *Crash points of monitors*: in a fleet of three monitors the leader is killed at one point, its successor at another, and the third
  monitor revives both.
- *Torn and flipped bytes*: while the service is down, one file is truncated at a random place, or a bit, 64 bytes or a block of it is overwritten.
- *Full disks*: one folder of the home is on a small tmpfs, which is filled to the last byte and later emptied.
- *Power cuts*: a shim records every `fsync` of the service and its JVM with the content of the file or folder, and each
  acknowledgement sent. The home is then rebuilt as it was on disk at some moment: only synced bytes under synced names.
- *Stopped or killed JVM*: SIGSTOP and SIGKILL to Spark's process while runs are in progress.
- *Clocks*: a shim shifts the wall clock of one node of a fleet with RabbitMQ and PostgreSQL, from its start or while it runs. The node is
  the leader, the gateway or the pipeline; the full set combines each of them with each offset.
- *Partition*: nftables drops all packets to and from PostgreSQL, inside a network namespace.
- *Machines*: six, each a network, process, mount and host-name namespace with its own disk, on a bridge: services (h1), Spark's master (h2), two
  workers (h3, h4), gateway and pipeline (h5), clients (h6); monitors on h1, h2 and h5. `⊘` is a cut by nftables, `←⊘` and `⊘→` one in one
  direction only; a slow link is a process that forwards packets late, at a limited rate, and not all of them; a machine that is off is
  replaced by one with an empty disk, except that of PostgreSQL. `election`: right after the leader was killed; `seal`: while
  clients send their ENDs; `final`: while answers are made. A trigger in the database records which leader was current when each decision was
  committed, and the logs of the monitors say under which epoch each of them acted.
"""


def render(results: Sequence[Result], catalog: Mapping[str, str]) -> str:
    """Returns the page, with faults in the order of the catalog (name: summary). Missed targets and faults that
    were not measured are listed below the table."""
    names = list(catalog)
    ordered = sorted(results, key=lambda result: names.index(result.fault))
    measurements = [measurement for result in ordered for measurement in result.measurements]
    text = _HEAD.format(facts=_facts(ordered, names))
    text += "".join(f"{_row(measurement)}\n" for measurement in measurements)
    missed = [f"- **{m.fault}**: {target}\n" for m in measurements for target in m.missed]
    if missed:
        text += "\n## Missed targets\n" + "".join(missed)
    skipped = [f"- **{m.fault}**: {m.skipped}\n" for m in measurements if m.skipped]
    if skipped:
        text += "\n## Not measured\n" + "".join(skipped)
    notes = [f"- **{m.fault}**: {note}\n" for m in measurements for note in m.notes]
    if notes:
        text += "\n## Notes\n" + "".join(notes)
    return text + _circumstances(ordered) + _WORDS


def _facts(results: Sequence[Result], names: Sequence[str]) -> str:
    """Date, version and machine; which faults were run in full, as a sample, or not at all."""
    if not results:
        return "Nothing has been measured yet."
    dates = sorted({result.date[:10] for result in results})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    versions, seeds = ({str(value) for value in values} for values in zip(*_versions(results), strict=True))
    cores, memory = results[-1].cores, results[-1].memory_gigabytes
    measurements = [measurement for result in results for measurement in result.measurements]
    counts = {
        verdict: sum(measurement.verdict is verdict for measurement in measurements) for verdict in Verdict
    }
    verdicts = ", ".join(f"{count} {verdict.value.strip('*')}" for verdict, count in counts.items() if count)
    runs = {result.fault: result.is_full for result in results}
    lists = {
        "In full": [name for name in names if runs.get(name) is True],
        "As a sample, with few repetitions": [name for name in names if runs.get(name) is False],
        "Not run": [name for name in names if name not in runs],
    }
    paragraphs = [f"**{title}**: {', '.join(faults)}." for title, faults in lists.items() if faults]
    return "\n\n".join(
        [
            f"Measured {when} with version {', '.join(sorted(versions))} on {cores} cores and {memory:.0f} GB of memory, "
            f"seed {', '.join(sorted(seeds))}. Verdicts: {verdicts}.",
            *paragraphs,
        ]
    )


def _versions(results: Sequence[Result]) -> list[tuple[str, int]]:
    return [(result.version, result.seed) for result in results]


def _circumstances(results: Sequence[Result]) -> str:
    rows = [
        f"| {result.fault} | {'full' if result.is_full else 'sample'} | {result.date} | {result.version} | {result.seed} "
        f"| {'?' if result.seconds is None else f'{result.seconds / 60:.1f}'} "
        f"| {'?' if result.load is None else f'{result.load:.1f} of {result.cores}'} |\n"
        for result in results
    ]
    return (
        "\n## When each fault was run\nThe load is the number of runnable processes in the minute before the fault began: "
        "above the number of cores, other work slowed the product down. A question mark means not recorded.\n\n"
        "| fault | set | date | version | seed | minutes | load |\n|---|---|---|---|---|---|---|\n"
        + "".join(rows)
    )


def _row(measurement: Measurement) -> str:
    measured = "; ".join(figure.measured for figure in measurement.figures) or "–"
    targets = "; ".join(figure.target for figure in measurement.figures if figure.target) or "–"
    cells = (
        measurement.fault,
        measurement.times,
        str(measurement.seed),
        measured,
        targets,
        measurement.verdict.value,
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

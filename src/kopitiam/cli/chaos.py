"""`kopi chaos`: strikes against a running fleet, and the report of what happened."""

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kopitiam.cli.options import Config, Json
from kopitiam.contracts.errors import ConfigError, RunFailed

if TYPE_CHECKING:
    from kopitiam.fleet.lifecycle import Fleet
    from kopitiam_chaos.chaos import Listeners
    from kopitiam_chaos.report import ChaosReport, RunOutcome, Spread, StrikeRecord

_WIDTH_OF_FILES = 120


def chaos(
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="The same seed gives the same plan.")] = 7,
    kills: Annotated[int, typer.Option(metavar="N", min=1, help="Number of strikes.")] = 8,
    freeze: Annotated[
        bool,
        typer.Option("--freeze", help="Freeze some nodes (SIGSTOP) for a while instead of killing them."),
    ] = False,
    targets: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Only these: names or kinds, such as pipeline-1,leader,service \\[default: all].",
            show_default=False,
        ),
    ] = None,
    clients: Annotated[int, typer.Option(metavar="K", min=1, help="Clients that submit at once.")] = 4,
    scale: Annotated[
        float, typer.Option(metavar="X", help="Size of each client's data; 1 is the full size.")
    ] = 0.001,
    patience: Annotated[
        float, typer.Option(metavar="P", min=1, help="Seconds within which a victim must recover.")
    ] = 300,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Kill nodes of a running fleet at random, while clients submit and verify; then report what happened.

    Gateways, pipelines, monitors (the leader too) and services of this machine are struck, never more at once
    than the fleet can recover from. The exit code is 0 only if every answer was exact and every node
    recovered; the fleet is left running.

    Examples:

      kopi cluster up --config fleet.toml && kopi chaos --config fleet.toml --seed 7 --kills 12

      kopi chaos --config fleet.toml --kills 6 --freeze --targets pipeline,leader --json
    """
    from kopitiam.fleet.lifecycle import open_fleet
    from kopitiam_chaos.chaos import ChaosOptions, run_chaos

    fleet = open_fleet(config)
    options = ChaosOptions(seed, kills, freeze, _groups(fleet, targets), clients, scale, patience)
    with _progress(kills) as listeners:
        report = run_chaos(fleet, options, listeners)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        show(report)
    if report.complaints:
        raise RunFailed(f"not every answer was exact and every node revived: {report.complaints[0]}")


def _groups(fleet: "Fleet", targets: str | None) -> dict[str, tuple[str, ...]]:
    from kopitiam_chaos.plan import LEADER, chosen, groups_of

    if not fleet.settings.nodes.monitors:
        raise ConfigError("nodes.monitors: without one no node is revived")
    kinds = {name: kind for name, kind in fleet.settings.nodes.kinds.items() if fleet.settings.is_here(name)}
    if not kinds:
        raise ConfigError(
            f"nodes.hosts: no node runs on {fleet.settings.host}, which this command could kill"
        )
    groups = groups_of(kinds)
    if not all(map(fleet.settings.is_here, fleet.settings.nodes.monitors)):
        groups.pop(LEADER, None)  # it may be on another machine
    if targets is not None:
        groups = chosen(groups, kinds, [word.strip() for word in targets.split(",")])
    return groups


@contextlib.contextmanager
def _progress(kills: int) -> "Iterator[Listeners]":
    from kopitiam_chaos.chaos import Listeners

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.fields[what]}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        revived = bars.add_task("", total=kills, what="revived")
        verified = bars.add_task("", total=None, what="runs   ")

        def on_step(what: str) -> None:
            bars.update(verified, description=what)

        def on_strike(record: "StrikeRecord") -> None:
            is_revived = record.revived_seconds is not None
            bars.update(
                revived, advance=int(is_revived), description=f"{record.name} {_progress_text(record)}"
            )

        def on_outcome(outcome: "RunOutcome") -> None:
            result = "exact" if outcome.is_exact else outcome.complaint
            bars.update(verified, advance=1, description=f"client {outcome.client}: {result}")

        yield Listeners(on_step, on_strike, on_outcome)


def _progress_text(record: "StrikeRecord") -> str:
    if record.revived_seconds is not None:
        return f"recovered after {record.revived_seconds:.1f} s"
    if record.noticed_seconds is not None:
        return f"detected after {record.noticed_seconds:.1f} s"
    return f"is {_strike_text(record)}"


def _strike_text(record: "StrikeRecord") -> str:
    return "killed" if record.deed == "kill" else f"frozen for {record.hold_seconds:.1f} s"


def show(report: "ChaosReport") -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_FILES)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("after s", justify="right")
    for title in ("victim", "done"):
        table.add_column(title, no_wrap=True)
    for title in ("noticed s", "back s"):
        table.add_column(title, justify="right")
    table.add_column("by")
    for record in report.records:
        name = f"{record.name} on {record.host}{' (leader)' if record.was_leader else ''}"
        times = (_seconds(record.noticed_seconds), _seconds(record.revived_seconds))
        way = "a new process" if record.is_replaced else "itself" if record.revived_seconds else "–"
        table.add_row(f"{record.at_seconds:.1f}", name, _strike_text(record), *times, way)
    console.print(table)
    for line in (*_account(report), *report.complaints):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _account(report: "ChaosReport") -> list[str]:
    rows = sum(run.rows.there for run in report.runs if run.rows)
    leaders = ", ".join(f"{epoch}: {' and '.join(names)}" for epoch, names in report.leaders_by_epoch.items())
    actions = sum(sum(counts.values()) for counts in report.actions_by_epoch.values())
    under_way = sum(bool(record.runs_under_way) for record in report.records)
    return [
        "",
        f"strikes while a run was under way: {under_way} of {len(report.records)}",
        f"runs verified: {report.verified} of {len(report.runs)}; rows: {rows:,}, "
        f"lost {report.rows_lost:,}, double {report.rows_doubled:,}",
        f"noticed: {_spread(report.notice)}; revived: {_spread(report.revival)}",
        f"leaders by epoch: {leaders}; actions of leaders in their logs: {actions}",
        f"clients ended: {report.clients_ended} of {report.clients}; {report.seconds:.0f} s in all",
    ]


def _spread(spread: "Spread") -> str:
    return f"{spread.count}, p50 {_seconds(spread.p50)} s, p99 {_seconds(spread.p99)} s"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"

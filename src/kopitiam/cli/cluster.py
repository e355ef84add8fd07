"""`kopi cluster`: start, stop and show a fleet; each machine starts and stops its own nodes."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from kopitiam.cli.columns import column_lines
from kopitiam.cli.options import Config, Json
from kopitiam.cli.progress import local_time

if TYPE_CHECKING:
    from kopitiam.fleet.status import NodeStatus

cluster = typer.Typer(
    help="Bring the nodes of this machine up or down, and show the fleet.",
    no_args_is_help=True,
    add_completion=False,
)
_COLORS = {"alive": "green", "starting": "yellow", "dead": "red", "stopped": "dim"}


@cluster.command()
def up(
    patience: Annotated[
        float, typer.Option("--patience", metavar="S", min=0, help="Seconds to wait for all to be ready.")
    ] = 120,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Start services, monitors, pipelines and gateways of this machine, and wait until they are ready.

    Running nodes are left alone. If a node does not start, those started by this command are stopped again.
    \\[nodes.hosts] names the machine of each node, and node.host this machine. Run the command on each
    machine, in any order.

    Examples:

      kopi cluster up --config fleet.toml

      kopi cluster up --config fleet.toml --patience 300 --json

      KOPI_NODE__HOST=h2 kopi cluster up --config fleet.toml
    """
    from kopitiam.fleet.cluster import up as bring_up
    from kopitiam.fleet.lifecycle import open_fleet

    with _progress() as on_step:
        nodes = bring_up(open_fleet(config), patience, on_step)
    _print(nodes, as_json)


@cluster.command()
def down(config: Config = None, as_json: Json = False) -> None:
    """Stop the nodes of this machine; data and logs stay.

    Example:

      kopi cluster down --config fleet.toml
    """
    from kopitiam.fleet.cluster import down as take_down
    from kopitiam.fleet.lifecycle import open_fleet

    with _progress() as on_step:
        stopped = take_down(open_fleet(config), on_step)
    if as_json:
        typer.echo(json.dumps({"stopped": stopped}))
    else:
        typer.echo(f"stopped: {', '.join(stopped)}" if stopped else "nothing is running")


@cluster.command()
def status(config: Config = None, as_json: Json = False) -> None:
    """Show the status of every node.

    Examples:

      kopi cluster status --config fleet.toml

      kopi cluster status --config fleet.toml --json
    """
    from kopitiam.fleet.lifecycle import open_fleet
    from kopitiam.fleet.status import fleet_status

    _print(fleet_status(open_fleet(config)), as_json)


def show(nodes: "Sequence[NodeStatus]", console: Console | None = None) -> None:
    console = console or Console()
    titles = ("name", "kind", "state", "since", "epoch", "host", "pid", "memory", "url")
    for line in column_lines(console, titles, [_cells(node) for node in nodes], figures={4, 6, 7}):
        for state, color in _COLORS.items():
            line.highlight_words([state], color)
        console.print(line, soft_wrap=True)
    for node in nodes:
        if node.alarm:
            alarm = Text(f"{node.name}: {node.alarm}", "red")
            console.print(alarm, soft_wrap=True)


def _cells(node: "NodeStatus") -> tuple[str, ...]:
    state = f"{node.state}, leads" if node.leader else node.state
    since = local_time(node.since) if node.since else ""
    memory = f"{node.memory_bytes / 1e6:,.0f} MB" if node.memory_bytes else ""
    return (
        node.name,
        node.kind,
        state,
        since,
        str(node.epoch or ""),
        node.host,
        str(node.pid or ""),
        memory,
        node.url or "",
    )


def _print(nodes: "Sequence[NodeStatus]", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([node.to_dict() for node in nodes], indent=2))
    else:
        show(nodes)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=None)

        def on_step(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield on_step

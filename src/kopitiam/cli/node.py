"""`kopi node`: one node of a fleet on this machine."""

import json
from typing import Annotated

import typer

from kopitiam.cli.options import Config, Json

node = typer.Typer(
    help="Start, stop or show one node of the fleet.", no_args_is_help=True, add_completion=False
)
Name = Annotated[
    str, typer.Argument(metavar="NODE", help="Its name under \\[nodes] in the settings.", show_default=False)
]


@node.command()
def start(name: Name, config: Config = None, as_json: Json = False) -> None:
    """Start a node in the background, unless it runs already.

    Examples:

      kopi node start gateway-1 --config fleet.toml

      kopi node start rabbitmq --config fleet.toml     on its recorded port and data
    """
    from kopitiam.fleet.home import read_record
    from kopitiam.fleet.lifecycle import open_fleet, start_node

    fleet = open_fleet(config)
    with fleet.naming_machine():
        is_new = start_node(fleet, name)
    record = read_record(fleet.home, name)
    pid = record.pid if record else None
    if as_json:
        typer.echo(json.dumps({"name": name, "pid": pid, "started": is_new}))
    else:
        typer.echo(f"{name} {'is started' if is_new else 'runs already'}, process {pid}")


@node.command()
def stop(name: Name, config: Config = None, as_json: Json = False) -> None:
    """Stop a node and all its processes.

    Example:

      kopi node stop pipeline-1 --config fleet.toml
    """
    from kopitiam.fleet.lifecycle import open_fleet, stop_node

    fleet = open_fleet(config)
    with fleet.naming_machine():
        was_alive = stop_node(fleet, name)
    if as_json:
        typer.echo(json.dumps({"name": name, "stopped": was_alive}))
    else:
        typer.echo(f"{name} {'is stopped' if was_alive else 'does not run'}")


@node.command()
def status(name: Name, config: Config = None, as_json: Json = False) -> None:
    """Show the status of a node.

    Example:

      kopi node status monitor-1 --config fleet.toml --json
    """
    from kopitiam.cli.cluster import show
    from kopitiam.fleet.lifecycle import open_fleet, require_kind
    from kopitiam.fleet.status import fleet_status

    fleet = open_fleet(config)
    require_kind(fleet, name)
    nodes = fleet_status(fleet, [name])
    if as_json:
        typer.echo(json.dumps(nodes[0].to_dict(), indent=2))
    else:
        show(nodes)

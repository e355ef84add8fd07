"""`kopi runs`, `status`, `results`, `cancel`: what a gateway knows of runs."""

import contextlib
import json
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from kopitiam.cli.columns import in_columns
from kopitiam.cli.connection import (
    SHORT_PATIENCE,
    Authority,
    Patience,
    Server,
    Token,
    connected,
)
from kopitiam.cli.options import AnswersJson, Config, Json
from kopitiam.cli.status_view import moment, progress_line, status_lines
from kopitiam.client.client import require_hope
from kopitiam.client.events import Listener
from kopitiam.client.events import watch as listen
from kopitiam.contracts.api import RunStatus
from kopitiam.contracts.config import load_settings
from kopitiam.contracts.errors import ConfigError, RunError
from kopitiam.contracts.runs import RunState

Run = Annotated[str, typer.Argument(metavar="RUN", help="The id of the run.", show_default=False)]


def runs(
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many, newest first.")] = 20,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List your runs, newest first."""
    settings = load_settings(config)
    with connected(server or settings.gateway.url, token, authority, patience) as client:
        found = list(islice(client.runs(), limit))
    if as_json:
        typer.echo(json.dumps([status.model_dump(mode="json") for status in found], indent=2))
        return
    console = Console()
    rows = [
        (status.run, status.label, status.state, moment(status.created_at), *_counts(status))
        for status in found
    ]
    titles = ("run", "label", "state", "since", "rows", "rejected")
    for line in in_columns(console, titles, rows, figures={4, 5}) if found else [Text("no runs")]:
        console.print(line, soft_wrap=True)


def _counts(status: RunStatus) -> tuple[str, str]:
    return f"{sum(table.rows for table in status.tables.values()):,}", f"{status.rejected:,}"


def status(
    run: Run,
    *,
    answers: Annotated[
        bool, typer.Option("--answers", help="Show the answers so far, provisional until it is done.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the run until it is over.")] = False,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show how far a run has come.

    Examples:

      kopi status RUN

      kopi status RUN --watch        live; ends with the run, and with 1 if it failed

      kopi status RUN --answers      what the answers are so far, and how many rows they cover
    """
    settings = load_settings(config)
    address = server or settings.gateway.url
    if watch and answers:
        raise ConfigError("want either --watch or --answers")
    if watch:
        _watch(run, Listener(address, token, patience_seconds=patience, verify=authority or True), as_json)
        return
    with connected(address, token, authority, patience) as client:
        handle = client.run(run)
        found = handle.status()
        if answers:
            from kopitiam.cli.delivery import deliver_provisional

            require_hope(found)
            deliver_provisional(handle, as_json)
            return
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        console = Console()
        for line in status_lines(found, console):
            console.print(line, soft_wrap=True)


def results(
    run: Run,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Folder for the answer files.", show_default=False)
    ] = None,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: AnswersJson = False,
) -> None:
    """Show the answers of a run, and keep them as files."""
    settings = load_settings(config)
    from kopitiam.cli.delivery import deliver

    with connected(server or settings.gateway.url, token, authority, patience) as client:
        handle = client.run(run)
        found = handle.status()
        require_hope(found)
        if found.state != RunState.DONE:
            raise RunError(f"run {run} is {found.state}: its answers are not there yet")
        deliver(handle, out, as_json)


def cancel(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The id of the run.", show_default=False)
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All your runs that are not over.")] = False,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """End a run by force: what was sent is removed, other runs never notice."""
    settings = load_settings(config)
    if (run is None) != every:
        raise ConfigError("want either RUN or --all")
    with connected(server or settings.gateway.url, token, authority, patience) as client:
        if run is not None:
            wanted = [run]
        else:
            wanted = [found.run for found in client.runs() if not RunState(found.state).is_over]
        ended = [client.cancel(name) for name in wanted]
    if as_json:
        shown = [found.model_dump(mode="json") for found in ended]
        typer.echo(json.dumps(shown if every else shown[0], indent=2))
    else:
        for found in ended:
            typer.echo(f"run {found.run} is {found.state}")


def _watch(run: str, listener: Listener, as_json: bool) -> None:
    """A picture that changes, or, where nobody looks, a line for each change."""
    console = Console()
    picture = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    with contextlib.closing(listener), picture or contextlib.nullcontext():
        for found in listen(listener, run):
            if picture is not None:
                picture.update(Group(*status_lines(found, console)), refresh=True)
            else:
                typer.echo(found.model_dump_json() if as_json else f"run {run}: {progress_line(found)}")
    require_hope(found)

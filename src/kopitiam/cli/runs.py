"""`kopi runs`, `status`, `results`, `cancel`: the runs of a gateway; `kopi runs delete`."""

import contextlib
import json
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from kopitiam.cli.columns import column_lines
from kopitiam.cli.options import (
    SHORT_PATIENCE,
    AnswersJson,
    Authority,
    Config,
    Json,
    Patience,
    Server,
    Token,
    connected,
)
from kopitiam.cli.progress import local_time, progress_line, status_lines
from kopitiam.client.calls import Calls
from kopitiam.client.http import Transport
from kopitiam.client.submitted_run import raise_if_failed
from kopitiam.contracts.api import RunStatus
from kopitiam.contracts.errors import ConfigError, RunError
from kopitiam.contracts.runs import RunState
from kopitiam.system.settings import load_settings

Run = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.", show_default=False)]


runs = typer.Typer(invoke_without_command=True, add_completion=False)


@runs.callback()
def list_runs(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Number of runs to list.")] = 20,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List your runs, newest first, or delete one.

    Examples:

      kopi runs --limit 5

      kopi runs delete RUN           with its answers
    """
    if context.invoked_subcommand is not None:
        return
    settings = load_settings(config)
    with connected(server or ",".join(settings.gateway_urls), token, authority, patience) as client:
        statuses = list(islice(client.runs(), limit))
    if as_json:
        typer.echo(json.dumps([status.model_dump(mode="json") for status in statuses], indent=2))
        return
    console = Console()
    rows = [
        (status.run, status.label, status.state, local_time(status.created_at), *_counts(status))
        for status in statuses
    ]
    titles = ("run", "label", "state", "since", "rows", "rejected")
    for line in column_lines(console, titles, rows, figures={4, 5}) if statuses else [Text("no runs")]:
        console.print(line, soft_wrap=True)


@runs.command()
def delete(
    run: Run,
    *,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Delete a run with its answers; one that is not over is ended first. Nothing of it remains.

    Files that it has sent to a data set belong to the data set, and stay: kopi data drop NAME deletes them.
    """
    settings = load_settings(config)
    with connected(server or ",".join(settings.gateway_urls), token, authority, patience) as client:
        status = client.run(run).delete()
    typer.echo(
        status.model_dump_json(indent=2) if as_json else f"run {run} is deleted; it was {status.state}"
    )


def _counts(status: RunStatus) -> tuple[str, str]:
    return f"{sum(table.rows for table in status.tables.values()):,}", f"{status.rejected:,}"


def status(
    run: Run,
    *,
    answers: Annotated[bool, typer.Option("--answers", help="Show the provisional answers.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the run until it ends.")] = False,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the status of a run.

    Examples:

      kopi status RUN

      kopi status RUN --watch        live, until the run ends; exits with 1 if it failed

      kopi status RUN --answers      the answers so far, and how many rows they cover
    """
    settings = load_settings(config)
    address = server or ",".join(settings.gateway_urls)
    if watch and answers:
        raise ConfigError("use either --watch or --answers")
    if watch:
        transport = Transport(address, token, patience_seconds=patience, verify=authority or True)
        with contextlib.closing(transport):
            _watch(Calls(transport), run, as_json)
        return
    with connected(address, token, authority, patience) as client:
        handle = client.run(run)
        current = handle.status()
        if answers:
            from kopitiam.cli.delivery import deliver_provisional

            raise_if_failed(current)
            deliver_provisional(handle, as_json)
            return
    if as_json:
        typer.echo(current.model_dump_json(indent=2))
    else:
        console = Console()
        for line in status_lines(current, console):
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
    """Show the answers of a run that is done, and keep them as files with --out."""
    settings = load_settings(config)
    from kopitiam.cli.delivery import deliver

    with connected(server or ",".join(settings.gateway_urls), token, authority, patience) as client:
        handle = client.run(run)
        current = handle.status()
        raise_if_failed(current)
        if current.state != RunState.DONE:
            raise RunError(f"run {run} is {current.state}: its answers are not ready yet")
        deliver(handle, out, as_json)


def cancel(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Id of the run.", show_default=False)
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="End all your runs that are not over.")] = False,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """End a run and remove its data; other runs are not affected."""
    settings = load_settings(config)
    if (run is None) != every:
        raise ConfigError("name a RUN or use --all")
    with connected(server or ",".join(settings.gateway_urls), token, authority, patience) as client:
        if run is not None:
            ids = [run]
        else:
            ids = [status.run for status in client.runs() if not RunState(status.state).is_over]
        ended = [client.cancel(id_) for id_ in ids]
    if as_json:
        content = [status.model_dump(mode="json") for status in ended]
        typer.echo(json.dumps(content if every else content[0], indent=2))
    else:
        for status in ended:
            typer.echo(f"run {status.run} is {status.state}")


def _watch(calls: Calls, run: str, as_json: bool) -> None:
    """Show a live view on a terminal, else print a line for each change."""
    console = Console()
    view = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    with view or contextlib.nullcontext():
        for status in calls.watch(run):
            if view is not None:
                view.update(Group(*status_lines(status, console)), refresh=True)
            else:
                typer.echo(status.model_dump_json() if as_json else f"run {run}: {progress_line(status)}")
    raise_if_failed(status)

"""`kopi runs`, `status`, `results`, `cancel`: what a gateway knows of runs."""

import json
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kopitiam.cli.connection import (
    DEFAULT_SERVER,
    SHORT_PATIENCE,
    Authority,
    Patience,
    Server,
    Token,
    connected,
)
from kopitiam.cli.options import Config, Json
from kopitiam.client.client import require_hope
from kopitiam.contracts.api import RunStatus
from kopitiam.contracts.config import load_settings
from kopitiam.contracts.errors import ConfigError, RunError
from kopitiam.contracts.runs import RunState

Run = Annotated[str, typer.Argument(metavar="RUN", help="The id of the run.", show_default=False)]


def runs(
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many, newest first.")] = 20,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List your runs, newest first."""
    load_settings(config)
    with connected(server, token, authority, patience) as client:
        found = list(islice(client.runs(), limit))
    if as_json:
        typer.echo(json.dumps([status.model_dump(mode="json") for status in found], indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("run", "label", "state", "since"):
        table.add_column(title, no_wrap=title != "label")
    for title in ("rows", "rejected"):
        table.add_column(title, justify="right", no_wrap=True)
    for status in found:
        rows = sum(table.rows for table in status.tables.values())
        cells = (status.run, status.label, status.state, _moment(status.created_at))
        table.add_row(*cells, f"{rows:,}", f"{status.rejected:,}")
    Console().print(table if found else "no runs")


def status(
    run: Run,
    *,
    answers: Annotated[
        bool, typer.Option("--answers", help="Show the answers so far, provisional until it is done.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show how far a run has come.

    Examples:

      kopi status RUN

      kopi status RUN --answers      what the answers are so far, and how many rows they cover
    """
    load_settings(config)
    with connected(server, token, authority, patience) as client:
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
        _show(Console(), found)


def results(
    run: Run,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Folder for the answer files.", show_default=False)
    ] = None,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the answers of a run, and keep them as files."""
    load_settings(config)
    from kopitiam.cli.delivery import deliver

    with connected(server, token, authority, patience) as client:
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
    server: Server = DEFAULT_SERVER,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """End a run by force: what was sent is removed, other runs never notice."""
    load_settings(config)
    if (run is None) != every:
        raise ConfigError("want either RUN or --all")
    with connected(server, token, authority, patience) as client:
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


def _show(console: Console, found: RunStatus) -> None:
    name = f"run {found.run}{f' ({found.label})' if found.label else ''}"
    console.print(f"{name}: {found.state}, since {_moment(found.created_at)}", highlight=False, markup=False)
    if found.error:
        console.print(found.error, style="red", highlight=False, markup=False)
    tables = Table("table", show_edge=False)
    for title in ("chunks", "rows", "rejected", "sealed"):
        tables.add_column(title, justify="right")
    for table, seen in found.tables.items():
        counts = (_of(seen.chunks, seen.expected_chunks), _of(seen.rows, seen.expected_rows))
        tables.add_row(table, *counts, f"{seen.rejected:,}", "yes" if seen.sealed else "no")
    console.print(tables)
    if found.stages:
        stages = Table("stage", "shard", show_edge=False)
        for title in ("chunks", "rows"):
            stages.add_column(title, justify="right")
        for stage, shards in found.stages.items():
            for shard, work in shards.items():
                stages.add_row(stage, shard, _of(work.processed, work.expected), f"{work.rows:,}")
        console.print(stages)


def _of(done: int, expected: int | None) -> str:
    return f"{done:,}" if expected is None else f"{done:,} of {expected:,}"


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"

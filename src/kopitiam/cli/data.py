"""`kopi ask`: a run over a data set that is there; `kopi data`: data sets, their versions and files."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from kopitiam.cli.columns import column_lines, name_text
from kopitiam.cli.options import (
    SHORT_PATIENCE,
    AnswersJson,
    Ask,
    Authority,
    Config,
    Hours,
    Json,
    MinAmount,
    Patience,
    Questions,
    Server,
    Token,
    Top,
    Years,
    changes_text,
    connected,
    run_parameters,
    select_questions,
)
from kopitiam.cli.progress import local_time
from kopitiam.cli.submit import question_arguments
from kopitiam.client.downloads import require_writable
from kopitiam.client.http import PATIENCE_SECONDS
from kopitiam.contracts.data_api import DataSetDetail, DataSetView
from kopitiam.contracts.errors import ConfigError
from kopitiam.system.settings import load_settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the data set.", show_default=False)]
Version = Annotated[
    int | None,
    typer.Option(
        "--version", metavar="N", min=1, help="Version \\[default: the newest].", show_default=False
    ),
]
data = typer.Typer(invoke_without_command=True, add_completion=False)


def ask(
    name: Name,
    *,
    version: Version = None,
    label: Annotated[str, typer.Option(metavar="L", help="A name for the run.", show_default=False)] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Folder for the answer files.", show_default=False)
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(
            "--since", metavar="N", min=1, help="Also show what changed since version N.", show_default=False
        ),
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Exit when the run is open.")] = False,
    years: Years = None,
    hours: Hours = None,
    min_amount: MinAmount = None,
    top: Top = None,
    questions: Questions = None,
    ask: Ask = None,
    server: Server = None,
    token: Token = None,
    patience: Patience = PATIENCE_SECONDS,
    authority: Authority = None,
    config: Config = None,
    as_json: AnswersJson = False,
) -> None:
    """Ask a data set that was sent with `kopi submit --data NAME`; nothing is sent again.

    What the same questions have computed of a file before is used again.

    Examples:

      kopi ask sales                                 the catalog, over the newest version

      kopi ask sales --years 2024 --top 10 --out answers

      kopi ask sales --questions mine.toml --ask sales_by_hour

      kopi ask sales --version 3                     as it was then

      kopi ask sales --since 3                       and what changed since then, answer by answer
    """
    if since is not None and no_wait:
        raise ConfigError("--since: expected without --no-wait")
    settings = load_settings(config)
    flags = (years, hours, min_amount, top)
    parameters = run_parameters(settings.questions, *flags)
    question_set = select_questions(settings.questions, parameters, questions, ask)
    if out is not None:
        require_writable(out)

    from kopitiam.cli.delivery import deliver
    from kopitiam.cli.progress import SubmitProgress

    arguments = question_arguments(settings.questions, question_set, *flags)
    address = server or ",".join(settings.gateway_urls)
    with (
        SubmitProgress(0) as progress,
        connected(address, token, authority, patience, progress.on_retry) as client,
    ):
        earlier = client.ask(name, since, label, **arguments) if since else None
        run = client.ask(name, version, label, **arguments)
        if no_wait:
            progress.stop()
            typer.echo(run.status().model_dump_json(indent=2) if as_json else run.id)
            return
        for waiting in (earlier, run):
            if waiting is not None:
                waiting.wait(progress=progress.on_status)
        progress.stop()
        deliver(run, out, as_json, earlier)


@data.callback()
def list_by_default(
    context: typer.Context,
    *,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List your data sets, show their versions and files, drop them.

    Examples:

      kopi data                      the same as kopi data list

      kopi data show sales           versions, what each of them changed, and files

      kopi data drop sales           with all files, and the answers of its runs
    """
    if context.invoked_subcommand is None:
        list_data_sets(
            server=server,
            token=token,
            patience=patience,
            authority=authority,
            config=config,
            as_json=as_json,
        )


@data.command("list")
def list_data_sets(
    *,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List your data sets."""
    settings = load_settings(config)
    with connected(server or ",".join(settings.gateway_urls), token, authority, patience) as client:
        data_sets = client.data_sets()
    if as_json:
        typer.echo(json.dumps([view.model_dump(mode="json") for view in data_sets], indent=2))
        return
    console = Console()
    titles = ("data set", "since", "version", "files", "rows")
    rows = [_row(view) for view in data_sets]
    for line in column_lines(console, titles, rows, figures={2, 3, 4}) if rows else [Text("no data sets")]:
        console.print(line, soft_wrap=True)


def _row(view: DataSetView) -> tuple[str, ...]:
    figures = (f"{view.version:,}", f"{view.files:,}", f"{view.rows:,}")
    return view.name, local_time(view.created_at), *figures


@data.command()
def show(
    name: Name,
    *,
    version: Version = None,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the versions of a data set, what each of them changed, and the files of one."""
    settings = load_settings(config)
    with connected(server or ",".join(settings.gateway_urls), token, authority, patience) as client:
        detail = client.data_set(name, version)
    if as_json:
        typer.echo(detail.model_dump_json(indent=2))
    else:
        _show(detail, Console())


def _show(detail: DataSetDetail, console: Console) -> None:
    versions = [
        (f"{each.version:,}", local_time(each.created_at), each.run, changes_text(each.changes))
        for each in detail.versions
    ]
    lines = list(column_lines(console, ("version", "since", "run", "changes"), versions, figures={0}))
    lines.append(Text(f"files of version {detail.version}", "bold"))
    files = [
        (file.table, name_text(file.name), f"{file.rows:,}", f"{file.rejected:,}", ", ".join(file.columns))
        for file in detail.files
    ]
    titles = ("table", "file", "rows", "rejected", "columns")
    lines += column_lines(console, titles, files, figures={2, 3})
    for line in lines:
        console.print(line, soft_wrap=True)


@data.command()
def drop(
    name: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Delete a data set with all versions and files, its runs and their answers. It cannot be undone."""
    settings = load_settings(config)
    with connected(server or ",".join(settings.gateway_urls), token, authority, patience) as client:
        if not yes:
            detail = client.data_set(name)
            _confirm(f"Delete data set {name}, {len(detail.files):,} files, and the answers of its runs?")
        dropped = client.drop(name)
    if as_json:
        typer.echo(dropped.model_dump_json(indent=2))
    else:
        typer.echo(f"data set {name} and {dropped.runs:,} runs are deleted; the last files go within seconds")


def _confirm(question: str) -> None:
    """Raises ConfigError if there is no terminal to ask, Abort if the answer is no."""
    if not sys.stdin.isatty():
        raise ConfigError("nothing is deleted without --yes")
    typer.confirm(question, abort=True)

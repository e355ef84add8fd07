"""`kopi watch`: sends exports to a data set while a folder fills with them."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kopitiam.cli.options import (
    Ask,
    Authority,
    Columns,
    Config,
    Hours,
    Json,
    MinAmount,
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
from kopitiam.cli.submit import question_arguments
from kopitiam.client.downloads import require_writable
from kopitiam.client.http import PATIENCE_SECONDS
from kopitiam.client.run_handle import RunHandle
from kopitiam.client.watching import SETTLE_SECONDS, Completeness, FolderWatch
from kopitiam.contracts.errors import ConfigError, InputError, RunFailed, RunOver, Unavailable
from kopitiam.system.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that exports are written to.", show_default=False)
    ],
    *,
    data: Annotated[
        str, typer.Option(metavar="NAME", help="The data set to send them to.", show_default=False)
    ],
    settle: Annotated[
        float,
        typer.Option(metavar="S", min=0, help="Seconds without a change after which a file is complete."),
    ] = SETTLE_SECONDS,
    marker: Annotated[
        str,
        typer.Option(
            metavar="SUFFIX",
            help="A file is complete when another one with this suffix stands beside it: sales.csv.done.",
            show_default=False,
        ),
    ] = "",
    every: Annotated[float, typer.Option(metavar="S", min=0.1, help="Seconds between two looks.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, send what is complete, and exit.")] = False,
    columns: Annotated[
        Columns, typer.Option(help="Columns to keep: those needed now, or all.")
    ] = Columns.NEEDED,
    strict: Annotated[bool, typer.Option("--strict", help="Send no file with a bad row.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Folder for the answers of each version.", show_default=False),
    ] = None,
    years: Years = None,
    hours: Hours = None,
    min_amount: MinAmount = None,
    top: Top = None,
    questions: Questions = None,
    ask: Ask = None,
    server: Server = None,
    token: Token = None,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Send exports to a data set as they come: whatever is complete and new in a folder.

    Runs until it is interrupted. Started again, it sends nothing twice, and continues what it was sending.

    Examples:

      kopi watch exports --data sales                       a file is complete after 30 s without a change

      kopi watch exports --data sales --marker .done        when sales.csv.done stands beside sales.csv

      kopi watch exports --data sales --out answers         answers/version-1, answers/version-2, ...

      kopi watch exports --data sales --once --settle 0     for cron: everything that is there now
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder")
    if marker and ("/" in marker or not marker.strip()):
        raise ConfigError(f"--marker {marker!r}: expected a suffix such as .done")
    settings = load_settings(config)
    flags = (years, hours, min_amount, top)
    question_set = select_questions(
        settings.questions, run_parameters(settings.questions, *flags), questions, ask
    )
    if out is not None:
        require_writable(out)
    with connected(
        server or ",".join(settings.gateway_urls), token, authority, PATIENCE_SECONDS, _note
    ) as client:
        looking = FolderWatch(
            client,
            folder,
            data,
            question_set.tables,
            question_arguments(settings.questions, question_set, *flags),
            Completeness(settle, marker),
            keeps_all=columns is Columns.ALL,
            is_strict=strict,
        )
        if once:
            if settle and not marker:
                looking.look()  # notes the stamps of all files
                time.sleep(settle)
            _look(looking, out, as_json, _note)
            return
        _watch(looking, out, as_json, every)


def _watch(looking: FolderWatch, out: Path | None, as_json: bool, every_seconds: float) -> None:
    """Look again and again. The same complaint is printed once, until it changes."""
    last = ""

    def complain(text: str) -> None:
        nonlocal last
        if text != last:
            _note(text)
        last = text

    complain(f"watching {looking.folder} for data set {looking.data}")
    while True:
        try:
            _look(looking, out, as_json, complain)
        except (InputError, Unavailable, RunFailed, RunOver) as error:
            complain(str(error))
        time.sleep(every_seconds)


def _look(looking: FolderWatch, out: Path | None, as_json: bool, on_note: "Callable[[str], object]") -> None:
    run = looking.look(on_note)
    if run is not None:
        run.wait()
        _report(run, out, as_json)


def _report(run: RunHandle, out: Path | None, as_json: bool) -> None:
    use = run.status().data
    assert use is not None
    folder = None if out is None else out / f"version-{use.version}"
    if folder is not None:
        run.download(folder)
    changes = changes_text(use.changes) if use.changes else ""
    if as_json:
        where = None if folder is None else str(folder)
        typer.echo(json.dumps({"run": run.id, "version": use.version, "changes": changes, "answers": where}))
    else:
        typer.echo(f"version {use.version}: {changes}" + (f"; answers in {folder}" if folder else ""))


def _note(text: str) -> None:
    typer.echo(text, err=True)

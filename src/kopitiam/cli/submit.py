"""`kopi submit`: uploads a folder to a gateway and shows the answers."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kopitiam.cli.options import (
    REVIVAL_PATIENCE,
    AnswersJson,
    Ask,
    Authority,
    Columns,
    Config,
    Hours,
    MinAmount,
    Questions,
    Server,
    Token,
    Top,
    Years,
    changes_text,
    connected,
    has_flags,
    run_arguments,
    run_parameters,
    select_questions,
)
from kopitiam.client.client import Client
from kopitiam.client.data_sets import DataExports
from kopitiam.client.downloads import require_writable
from kopitiam.client.folder import InputFolder, check_structure, open_folder
from kopitiam.client.http import PATIENCE_SECONDS
from kopitiam.client.run_handle import RunHandle
from kopitiam.contracts.config import QuestionsSection
from kopitiam.contracts.errors import ConfigError, Unavailable
from kopitiam.contracts.tables import Table
from kopitiam.questions.question_set import QuestionSet
from kopitiam.system.settings import load_settings

if TYPE_CHECKING:
    from kopitiam.cli.progress import SubmitProgress


def submit(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder or zip archive of CSV exports.", show_default=False),
    ],
    *,
    server: Server = None,
    token: Token = None,
    label: Annotated[str, typer.Option(metavar="L", help="A name for the run.", show_default=False)] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Folder for the answer files.", show_default=False)
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue the upload of this run.", show_default=False)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Send what differs from the newest version of this data set, and answer over all of it.",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        Columns, typer.Option(help="With --data: columns to keep of the files that are sent.")
    ] = Columns.NEEDED,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail at the first bad row instead of rejecting it.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Exit after the upload.")] = False,
    years: Years = None,
    hours: Hours = None,
    min_amount: MinAmount = None,
    top: Top = None,
    questions: Questions = None,
    ask: Ask = None,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0,
            help=f"Seconds to wait for an unavailable gateway \\[default: {REVIVAL_PATIENCE:.0f} at first, "
            f"{PATIENCE_SECONDS:.0f} once the run is open].",
            show_default=False,
        ),
    ] = None,
    authority: Authority = None,
    config: Config = None,
    as_json: AnswersJson = False,
) -> None:
    """Send a folder of CSV exports to a gateway, wait, and show the answers.

    Examples:

      kopi submit exports --server http://gateway:8440 --out answers

      kopi submit exports --questions mine.toml --ask sales_by_hour

      kopi submit exports --resume 0f8c2d...   continue after a crash: sends only missing chunks

      kopi submit exports --data sales         keep the files: later, only new and changed ones are sent

      kopi submit exports --data sales --columns all     for questions that you do not know yet
    """
    settings = load_settings(config)
    flags = (years, hours, min_amount, top)
    question_set = select_questions(
        settings.questions, run_parameters(settings.questions, *flags), questions, ask
    )
    if resume is not None and (label or data or has_flags(*flags) or questions or ask):
        raise ConfigError("--resume: the run already has its label, its data set and its questions")
    if data is None and resume is None and columns is not Columns.NEEDED:
        raise ConfigError("--columns: only a data set keeps columns; name one with --data")
    if out is not None:
        require_writable(out)

    from kopitiam.cli.delivery import deliver
    from kopitiam.cli.progress import SubmitProgress

    server = server or ",".join(settings.gateway_urls)
    first, later = (REVIVAL_PATIENCE, PATIENCE_SECONDS) if patience is None else (patience, patience)
    patient = partial(connected, server, token, authority)
    upload = _find_upload(partial(patient, first), folder, question_set.tables, resume, data, columns)
    with (
        SubmitProgress(upload.total_bytes) as progress,
        patient(later, progress.on_retry) as client,
    ):
        upload.check(progress)
        if resume is None:
            arguments = question_arguments(settings.questions, question_set, *flags)
            with patient(first, progress.on_retry) as opening:
                resume = upload.open_run(opening, label, arguments).id
        run = client.run(resume)
        with _resumable(run, _resume_hint(folder, run, server, out, strict, columns), progress):
            upload.send(run, strict, progress)
            if not no_wait:
                run.wait(progress=progress.on_status)
            progress.stop()
        if no_wait:
            typer.echo(run.status().model_dump_json(indent=2) if as_json else run.id)
        else:
            deliver(run, out, as_json)


class _TableUpload:
    """The tables of a run, which are gone when the answers are there."""

    def __init__(self, folder: InputFolder) -> None:
        self._folder = folder
        self.total_bytes = folder.total_bytes

    def check(self, progress: "SubmitProgress") -> None:
        for note in check_structure(self._folder, progress.on_checked):
            progress.print_line(note)

    def open_run(self, client: Client, label: str, arguments: dict[str, Any]) -> RunHandle:
        return client.open_run(label, **arguments)

    def send(self, run: RunHandle, strict: bool, progress: "SubmitProgress") -> None:
        run.upload(self._folder, strict=strict, progress=progress.on_table)


class _FileUpload:
    """The files that differ from the newest version of a data set."""

    def __init__(self, exports: DataExports) -> None:
        self._exports = exports
        self.total_bytes = exports.total_bytes

    def check(self, progress: "SubmitProgress") -> None:
        self._changes = self._exports.compare(progress.on_checked, progress.print_line)
        progress.print_line(self._changes.text)

    def open_run(self, client: Client, label: str, arguments: dict[str, Any]) -> RunHandle:
        return client.open_upload(self._changes, label, **arguments)

    def send(self, run: RunHandle, strict: bool, progress: "SubmitProgress") -> None:
        run.send_files(self._changes, strict=strict, progress=progress.on_table, on_note=progress.print_line)
        use = run.status().data
        if use is not None and use.changes is not None:
            progress.print_line(f"data set {use.name}, version {use.version}: {changes_text(use.changes)}")


def _find_upload(
    connect: Callable[[], AbstractContextManager[Client]],
    folder: Path,
    tables: dict[str, Table],
    resume: str | None,
    data: str | None,
    columns: Columns,
) -> _TableUpload | _FileUpload:
    """Find the files to send. Only a resumed run and a data set need the gateway for that."""
    if resume is None and data is None:
        return _TableUpload(open_folder(folder, tables))
    with connect() as client:
        keeps_all = columns is Columns.ALL
        if resume is None:
            assert data is not None
            return _FileUpload(client.data_exports(folder, data, tables, keeps_all=keeps_all))
        status = client.run(resume).status()
        if status.data is not None:
            return _FileUpload(client.resumed_exports(folder, resume, keeps_all=keeps_all))
        return _TableUpload(open_folder(folder, client.run(resume).tables()))


def question_arguments(
    base: QuestionsSection,
    question_set: QuestionSet,
    years: str | None,
    hours: str | None,
    min_amount: str | None,
    top: int | None,
) -> dict[str, Any]:
    """Return only the parameters that settings or flags give: the gateway has its own defaults."""
    flags = {"years": years, "hours": hours, "min_amount": min_amount, "top": top}
    names = base.model_fields_set | {name for name, flag in flags.items() if flag is not None}
    arguments = run_arguments(question_set)
    return {name: value for name, value in arguments.items() if name not in flags or name in names}


def _resume_hint(
    folder: Path, run: RunHandle, server: str, out: Path | None, strict: bool, columns: Columns
) -> str:
    words = ["kopi", "submit", str(folder), "--server", server, "--resume", run.id]
    words += ["--out", str(out)] if out is not None else []
    words += ["--strict"] if strict else []
    words += ["--columns", columns] if columns is not Columns.NEEDED else []
    return f"resume with: {shlex.join(words)}"


@contextmanager
def _resumable(run: RunHandle, resume_hint: str, progress: "SubmitProgress") -> Iterator[None]:
    """Print how to resume: at once, in case the process is killed, and when the upload is interrupted."""
    progress.print_line(f"run {run.id}; {resume_hint}")
    try:
        yield
    except BaseException as error:
        progress.stop()
        if isinstance(error, Unavailable) or not isinstance(error, Exception):  # a signal
            typer.echo(f"run {run.id} is not cancelled; {resume_hint}", err=True)
        raise

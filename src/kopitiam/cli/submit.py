"""`kopi submit`: uploads a folder to a gateway and shows the answers."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kopitiam.cli.options import (
    AnswersJson,
    Ask,
    Authority,
    Config,
    Hours,
    MinAmount,
    Questions,
    Server,
    Token,
    Top,
    Years,
    connected,
    has_flags,
    run_arguments,
    run_parameters,
    select_questions,
)
from kopitiam.client.client import RunHandle
from kopitiam.client.downloads import require_writable
from kopitiam.client.folder import InputFolder, check_structure, open_folder
from kopitiam.client.http import PATIENCE_SECONDS
from kopitiam.contracts.config import QuestionsSection
from kopitiam.contracts.errors import ConfigError, Unavailable
from kopitiam.questions.question_set import QuestionSet
from kopitiam.system.settings import load_settings

if TYPE_CHECKING:
    from kopitiam.cli.progress import SubmitProgress

_FIRST_SECONDS = 45.0  # long enough for a dead gateway to be revived


def submit(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with the CSV exports.", show_default=False)
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
            help=f"Seconds to wait for an unavailable gateway \\[default: {_FIRST_SECONDS:.0f} at first, "
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
    """
    settings = load_settings(config)
    flags = (years, hours, min_amount, top)
    question_set = select_questions(
        settings.questions, run_parameters(settings.questions, *flags), questions, ask
    )
    if resume is not None and (label or has_flags(*flags) or questions or ask):
        raise ConfigError("--resume: the run already has its label and its questions")
    if out is not None:
        require_writable(out)

    from kopitiam.cli.delivery import deliver
    from kopitiam.cli.progress import SubmitProgress

    server = server or settings.gateway.url
    first, later = (_FIRST_SECONDS, PATIENCE_SECONDS) if patience is None else (patience, patience)
    tables = question_set.tables
    if resume is not None:
        with connected(server, token, authority, first) as client:
            tables = client.run(resume).tables()
    exports = open_folder(folder, tables)
    with (
        SubmitProgress(exports.total_bytes) as progress,
        connected(server, token, authority, later, progress.on_trouble) as client,
    ):
        check_structure(exports, progress.on_checked)
        if resume is None:
            with connected(server, token, authority, first, progress.on_trouble) as opening:
                resume = opening.open_run(label, **_arguments(settings.questions, question_set, *flags)).id
        run = client.run(resume)
        with _resumable(run, _resume_hint(exports, run, server, out, strict), progress):
            run.upload(exports, strict=strict, progress=progress.on_table)
            if not no_wait:
                run.wait(progress=progress.on_status)
            progress.stop()
        if no_wait:
            typer.echo(run.status().model_dump_json(indent=2) if as_json else run.id)
        else:
            deliver(run, out, as_json)


def _arguments(
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


def _resume_hint(folder: InputFolder, run: RunHandle, server: str, out: Path | None, strict: bool) -> str:
    words = ["kopi", "submit", str(folder.path), "--server", server, "--resume", run.id]
    words += ["--out", str(out)] if out is not None else []
    words += ["--strict"] if strict else []
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

"""`kopi analyze`: answers in one process, or of a running service; `kopi warm`: prepares an installation."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.cli.options import (
    REVIVAL_PATIENCE,
    AnswersJson,
    Ask,
    Authority,
    Config,
    Hours,
    Json,
    MinAmount,
    Questions,
    Token,
    Top,
    Years,
    connected,
    run_arguments,
    run_parameters,
    select_questions,
)
from kopitiam.client.downloads import require_writable
from kopitiam.client.folder import InputFolder, check_structure, open_folder
from kopitiam.client.submitted_run import SubmittedRun
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError
from kopitiam.questions.question_set import QuestionSet
from kopitiam.system.settings import load_settings


def analyze(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder or zip archive of CSV exports.", show_default=False),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Folder for the answer files.", show_default=False)
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail at the first bad row instead of rejecting it.")
    ] = False,
    years: Years = None,
    hours: Hours = None,
    min_amount: MinAmount = None,
    top: Top = None,
    questions: Questions = None,
    ask: Ask = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL,URL", help="Use this running service instead of starting Spark.", show_default=False
        ),
    ] = None,
    token: Token = None,
    authority: Authority = None,
    config: Config = None,
    as_json: AnswersJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the log of Spark.")] = False,
) -> None:
    """Answer questions about a folder of CSV exports, in one process.

    Examples:

      kopi analyze exports                              answers in the terminal

      kopi analyze exports --out answers                also as files, with a report.html

      kopi analyze exports.zip                          files may be compressed: .csv.gz, .csv.zst, .zip

      kopi analyze exports --years 2024 --top 5 --strict

      kopi analyze exports --questions mine.toml        all questions of your own file

      kopi analyze exports --questions mine.toml --ask sales_by_hour --ask 3

      kopi analyze exports --server http://127.0.0.1:8440     the same, without waiting for Spark to start
    """
    settings = load_settings(config)
    parameters = run_parameters(settings.questions, years, hours, min_amount, top)
    question_set = select_questions(settings.questions, parameters, questions, ask)
    exports = open_folder(folder, question_set.tables)

    if out is not None:
        require_writable(out)

    from kopitiam.cli.progress import AnalysisProgress

    with AnalysisProgress(exports.total_bytes) as progress:
        for note in check_structure(exports, progress.on_checked):
            progress.print_line(note)
        if server is None:
            opened = _run_here(settings, exports, question_set, verbose)
        else:
            opened = _run_at(server, token, authority, question_set, progress.on_retry)
        with opened as (run, raise_if_not_started):
            from kopitiam.cli.delivery import deliver

            run.upload(exports, strict=strict, progress=progress.on_table)
            raise_if_not_started()
            run.wait(progress=progress.on_status)
            progress.stop()
            deliver(run, out, as_json)


@contextmanager
def _run_here(
    settings: Settings, exports: InputFolder, question_set: QuestionSet, is_verbose: bool
) -> Iterator[tuple[SubmittedRun, Callable[[], object]]]:
    """Open a run that ends with the block. Also returns a call that raises the reason if Spark did not
    start."""
    from kopitiam.runtime.analyze import analysis

    with analysis(settings, question_set, exports.total_bytes, is_verbose=is_verbose) as (run, engine):
        yield run, engine.session.result


@contextmanager
def _run_at(
    server: str,
    token: str | None,
    authority: Path | None,
    question_set: QuestionSet,
    on_retry: Callable[[str], None],
) -> Iterator[tuple[SubmittedRun, Callable[[], object]]]:
    """Open a run of a service that is running. The run is cancelled if the block fails or is interrupted."""
    with connected(server, token, authority, REVIVAL_PATIENCE, on_retry) as client:
        run = client.open_run(**run_arguments(question_set))
        try:
            yield run, lambda: None
        except BaseException:
            with connected(server, token, authority, 0) as other, suppress(KopitiamError):
                other.cancel(run.id)
            raise


def warm(config: Config = None, as_json: Json = False) -> None:
    """Prepare an installation: a compiled CSV parser, a lean Spark home, and a Java class archive.

    Spark then starts in half the time, and CSV is read in a quarter of it. Runs one small analysis. Once per
    installation is enough; `make setup` does it.
    """
    settings = load_settings(config)
    from kopitiam.runtime.analyze import warm_up

    java, archive, parser = warm_up(settings)
    if as_json:
        written = {"archive": str(archive) if archive else None, "java": java.version, "parser": str(parser)}
        typer.echo(json.dumps(written))
    else:
        typer.echo(f"CSV parser: {parser}")
        archived = archive or "none was written; Spark starts without it"
        typer.echo(f"Class archive for Java {java.version}: {archived}")

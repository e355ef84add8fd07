"""`kopi analyze`: answers in one process; `kopi warm`: makes Spark start faster."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.cli.options import (
    AnswersJson,
    Ask,
    Config,
    Hours,
    Json,
    MinAmount,
    Questions,
    Top,
    Years,
    run_arguments,
    run_parameters,
    select_questions,
)
from kopitiam.client.downloads import require_writable
from kopitiam.client.folder import check_structure, open_folder
from kopitiam.system.settings import load_settings


def analyze(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with the CSV exports.", show_default=False)
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
    config: Config = None,
    as_json: AnswersJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the log of Spark.")] = False,
) -> None:
    """Answer questions about a folder of CSV exports, in one process.

    Examples:

      kopi analyze exports                              answers in the terminal

      kopi analyze exports --out answers                also as files, with a report.html

      kopi analyze exports --years 2024 --top 5 --strict

      kopi analyze exports --questions mine.toml        all questions of your own file

      kopi analyze exports --questions mine.toml --ask sales_by_hour --ask 3
    """
    settings = load_settings(config)
    parameters = run_parameters(settings.questions, years, hours, min_amount, top)
    question_set = select_questions(settings.questions, parameters, questions, ask)
    exports = open_folder(folder, question_set.tables)

    if out is not None:
        require_writable(out)

    from kopitiam.cli.progress import AnalysisProgress
    from kopitiam.runtime.analyze import analysis_client

    with AnalysisProgress(exports.total_bytes) as progress:
        check_structure(exports, progress.on_checked)
        with analysis_client(settings, exports.total_bytes, is_verbose=verbose) as (client, engine):
            from kopitiam.cli.delivery import deliver

            run = client.open_run(**run_arguments(question_set))
            run.upload(exports, strict=strict, progress=progress.on_table)
            engine.session.result()  # raises the reason if Spark did not start
            run.wait(progress=progress.on_status)
            progress.stop()
            deliver(run, out, as_json)


def warm(config: Config = None, as_json: Json = False) -> None:
    """Prepare a lean Spark home and a Java class archive, which halve the start time of Spark.

    Runs one small analysis. Once per installation is enough; `make setup` does it.
    """
    settings = load_settings(config)
    from kopitiam.runtime.analyze import warm_up

    java, archive = warm_up(settings)
    if as_json:
        typer.echo(json.dumps({"archive": str(archive) if archive else None, "java": java.version}))
    else:
        typer.echo(f"Class archive for Java {java.version}: {archive or 'not supported by this Java'}")

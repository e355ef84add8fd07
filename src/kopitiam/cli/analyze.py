"""`kopi analyze`: the analyst's command."""

from pathlib import Path
from typing import Annotated

import typer

from kopitiam.cli.options import (
    AnswersJson,
    Ask,
    Config,
    Hours,
    MinAmount,
    Questions,
    Top,
    Years,
    question_set,
    run_arguments,
    run_parameters,
)
from kopitiam.client.downloads import require_writable
from kopitiam.client.folder import check_structure, open_folder
from kopitiam.contracts.config import load_settings

_BRIEF_BYTES = 1 << 30


def analyze(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with the CSV exports.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Folder for the answer files.", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if a single row does not parse.")] = False,
    years: Years = None,
    hours: Hours = None,
    min_amount: MinAmount = None,
    top: Top = None,
    questions: Questions = None,
    ask: Ask = None,
    config: Config = None,
    as_json: AnswersJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark has to say.")] = False,
) -> None:
    """Answer questions about a folder of CSV exports, in one process: the catalog's, or those you name.

    Examples:

      kopi analyze exports                              answers in the terminal

      kopi analyze exports --out answers                and as files, with a report.html to look at

      kopi analyze exports --years 2024 --top 5 --strict

      kopi analyze exports --questions mine.toml        all questions of a file of your own

      kopi analyze exports --questions mine.toml --ask sales_by_hour --ask 3
    """
    settings = load_settings(config)
    parameters = run_parameters(settings.questions, years, hours, min_amount, top)
    asked = question_set(settings.questions, parameters, questions, ask)
    found = open_folder(folder, asked.tables)

    if out is not None:
        require_writable(out)

    from kopitiam.cli.progress import AnalysisProgress
    from kopitiam.runtime.analyze import private_client
    from kopitiam.spark.session import SparkOptions

    with AnalysisProgress(found.total_bytes) as progress:
        check_structure(found, progress.on_checked)
        options = SparkOptions(
            settings.spark.master,
            settings.spark.conf,
            is_brief=found.total_bytes < _BRIEF_BYTES,
            is_verbose=verbose,
        )
        with private_client(settings, options) as (client, engine):
            from kopitiam.cli.delivery import deliver

            run = client.open_run(**run_arguments(asked))
            client.upload(found, run, strict=strict, progress=progress.on_table)
            engine.session.result()  # if Spark does not start, that is what to tell
            run.wait(progress=progress.on_status)
            progress.stop()
            deliver(run, out, as_json)

"""`kopi verify`: the independent check of answers."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.cli.options import (
    Ask,
    Config,
    Hours,
    Json,
    MinAmount,
    Questions,
    Top,
    Years,
    has_flags,
    run_parameters,
    select_questions,
)
from kopitiam.contracts.errors import Difference
from kopitiam.system.settings import load_settings


def verify(
    data: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder or zip archive of CSV exports.", show_default=False),
    ],
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Folder with the answer files.", show_default=False)
    ],
    years: Years = None,
    hours: Hours = None,
    min_amount: MinAmount = None,
    top: Top = None,
    questions: Questions = None,
    ask: Ask = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Check answer files against the CSV exports with DuckDB, without Spark: every cell, order and ties.

    Prints the differences and exits with 1 if there are any. Flags say which questions were asked; without
    flags, summary.json in RESULTS does, and without it the settings.

    Examples:

      kopi verify exports answers

      kopi verify exports answers --questions mine.toml --ask sales_by_hour
    """
    settings = load_settings(config)
    from kopitiam.verification import verify as check

    flags = (years, hours, min_amount, top)
    question_set = select_questions(
        settings.questions, run_parameters(settings.questions, *flags), questions, ask
    )
    report = check(
        data,
        results,
        question_set.parameters if has_flags(*flags) else None,
        question_set.questions if questions or ask else None,
        default=question_set,
    )
    if as_json:
        typer.echo(json.dumps({"is_equal": report.is_equal, **asdict(report)}, indent=2, ensure_ascii=False))
    else:
        for answer in report.answers:
            state = "equal" if answer.is_equal else f"{answer.difference_count:,} differences"
            typer.echo(
                f"{answer.file}: {answer.rows_expected:,} rows expected, {answer.rows_found:,} found: {state}"
            )
        for line in report.differences:
            typer.echo(f"  {line}")
    if not report.is_equal:
        raise Difference(f"the answers in {results} differ from those of {data}")

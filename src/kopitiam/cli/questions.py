"""`kopi questions`: shows the catalog, or checks your own definitions."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kopitiam.cli.answer_view import print_text, title_of
from kopitiam.cli.options import Config, Json, read_questions
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.questions.definitions import Question
from kopitiam.questions.explanations import bytes_per_row, explain, text_of
from kopitiam.questions.groups import count_groups
from kopitiam.questions.question_set import QuestionSet
from kopitiam.system.settings import load_settings


def questions(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="F", help="TOML files with questions of your own.", show_default=False),
    ] = None,
    *,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the questions of the catalog, or check files with questions of your own.

    Explains each question: what it reads and what that costs, which rows count, what a partial keeps and how
    partials merge, the ranking, and the columns of the answer. For a file with a flaw, prints the first flaw
    with its line and exits with 2. docs/questions.md explains how to write a question.

    Examples:

      kopi questions                    the catalog

      kopi questions mine.toml          what each question of the file does, or the first flaw

      kopi questions mine.toml --json
    """
    settings = load_settings(config).questions
    parameters = settings.parameters()
    own = read_questions(files or [], parameters, settings.max_groups)
    shown = own or list(builtin().values())
    QuestionSet.select(parameters, own)  # raises if two questions share the name of a stage
    if as_json:
        content = [_as_json(question, parameters) for question in shown]
        typer.echo(json.dumps({"questions": content}, indent=2, ensure_ascii=False))
    else:
        _show(shown, files or [])


def _show(shown: Iterable[Question], files: list[Path]) -> None:
    console = Console()
    for question in shown:
        print_text(console, title_of(question), indent=0, style="bold")
        for sentence in explain(question):
            print_text(console, sentence)
        console.print()
    if files:
        flags = " ".join(f"--questions {file}" for file in files)
        print_text(console, f"All questions are valid. Ask them with: kopi analyze DIR {flags}", indent=0)
    else:
        print_text(
            console, "Write your own questions in a TOML file and check it with: kopi questions F", indent=0
        )


def _as_json(question: Question, parameters: Parameters) -> dict[str, Any]:
    return {
        "name": question.name,
        "title": question.title,
        "builtin": question.is_builtin,
        "file": question.file_name("csv"),
        "reads": {table: list(columns) for table, columns in question.reads.items()},
        "bytes_per_row": bytes_per_row(question),
        "keeps": [text_of(expression) for expression in question.kept],
        "aggregates": [text_of(aggregate) for aggregate in question.aggregates],
        "groups": None if question.lists_rows else count_groups(question, parameters),
        "columns": [
            {
                "name": column.name,
                "kind": column.kind.value,
                "role": column.role,
                "shown": column.name in question.shown,
            }
            for column in question.answer_columns
        ],
        "order": list(question.sort_columns),
        "explains": explain(question),
        "definition": json.loads(question.definition),
    }

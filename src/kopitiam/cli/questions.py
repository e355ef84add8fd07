"""`kopi questions`: the catalog, or a check of definitions of one's own."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kopitiam.cli.answer_view import say, title_of
from kopitiam.cli.options import Config, Json, read_questions
from kopitiam.contracts.config import load_settings
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.questions.costs import bytes_per_row
from kopitiam.questions.definitions import Question
from kopitiam.questions.explanations import explain
from kopitiam.questions.groups import count_groups
from kopitiam.questions.question_set import QuestionSet
from kopitiam.questions.sql_text import text_of


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

    Each question is told in sentences: what it reads and what that costs, which rows count, what is kept of
    them and how it merges, how it is ranked, what the answer shows. Of a file with a flaw, the first flaw is
    told with its line, and the command ends with 2. docs/questions.md says how to write a question.

    Examples:

      kopi questions                    the catalog

      kopi questions mine.toml          what each question of the file does, or the first flaw

      kopi questions mine.toml --json
    """
    settings = load_settings(config).questions
    parameters = settings.ask()
    own = read_questions(files or [], parameters, settings.max_groups)
    shown = own or list(builtin().values())
    QuestionSet.select(parameters, own)  # questions that are asked together must not share names of stages
    if as_json:
        told = [_told(question, parameters) for question in shown]
        typer.echo(json.dumps({"questions": told}, indent=2, ensure_ascii=False))
    else:
        _show(shown, files or [])


def _show(shown: Iterable[Question], files: list[Path]) -> None:
    console = Console()
    for question in shown:
        say(console, title_of(question), indent=0, style="bold")
        for sentence in explain(question):
            say(console, sentence)
        console.print()
    if files:
        flags = " ".join(f"--questions {file}" for file in files)
        say(console, f"All of them can be asked: kopi analyze DIR {flags}", indent=0)
    else:
        say(console, "Your own questions go into a file: kopi questions F checks them.", indent=0)


def _told(question: Question, parameters: Parameters) -> dict[str, Any]:
    return {
        "name": question.name,
        "title": question.title,
        "builtin": question.is_builtin,
        "file": question.csv_name,
        "reads": {table: list(columns) for table, columns in question.reads.items()},
        "bytes_per_row": bytes_per_row(question),
        "keeps": [text_of(each) for each in question.kept],
        "aggregates": [text_of(each) for each in question.aggregates],
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

"""Options that several commands share, and how they select the gateway to call and the questions to ask."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kopitiam.contracts.config import QuestionsSection
from kopitiam.contracts.data_api import DataChanges
from kopitiam.contracts.data_sets import Changes
from kopitiam.contracts.errors import ConfigError, InputError, QuestionError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import read_toml
from kopitiam.questions.definitions import Question
from kopitiam.questions.groups import require_few_groups
from kopitiam.questions.question_set import QuestionSet

if TYPE_CHECKING:
    from kopitiam.client.client import Client

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL,URL",
        envvar="KOPI_SERVER",
        help="Address of the gateway, or of several of one fleet \\[default: those of the settings].",
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="T", envvar="KOPI_TOKEN", help="Your token.", show_default=False),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        envvar="KOPI_CA",
        help="Certificates to trust instead of the system's.",
        show_default=False,
    ),
]
Patience = Annotated[
    float, typer.Option("--patience", metavar="S", min=0, help="Seconds to wait for an unavailable gateway.")
]
SHORT_PATIENCE = 10.0  # for commands that upload nothing
REVIVAL_PATIENCE = 45.0  # long enough for a dead gateway to be revived


@contextmanager
def connected(
    server: str,
    token: str | None,
    authority: Path | None,
    patience: float,
    on_retry: Callable[[str], None] = lambda _: None,
) -> "Iterator[Client]":
    """Open a client and close it at the end; `on_retry` is called with each temporary failure."""
    from kopitiam.client.client import Client  # `kopi analyze` starts faster without it
    from kopitiam.client.http import Transport

    transport = Transport(
        server, token, patience_seconds=patience, verify=authority or True, on_retry=on_retry
    )
    with Client.over(transport) as client:
        yield client


_MAX_FILE_BYTES = 1 << 20  # of a file of questions

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="F", help="Settings file \\[default: ./kopitiam.toml if it exists]."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of text.")]
AnswersJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON for scripts instead of text: the first 10 rows of an answer that lists rows, the "
        "first 1,000 of any other; summary.answers has all counts.",
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow other machines to connect without tokens.")]
LogJson = Annotated[
    bool, typer.Option("--log-json", envvar="KOPI_LOG_JSON", help="Log JSON lines instead of text.")
]
Years = Annotated[
    str | None,
    typer.Option(metavar="A-B", help="Years, both inclusive \\[default: 2024-2025].", show_default=False),
]
Hours = Annotated[
    str | None,
    typer.Option(
        metavar="A-B", help="Time of day, both inclusive \\[default: 06:00:00-23:00:00].", show_default=False
    ),
]
MinAmount = Annotated[
    str | None,
    typer.Option(
        metavar="RM",
        help="Smallest amount that the filter @amount accepts \\[default: 75].",
        show_default=False,
    ),
]
Top = Annotated[
    int | None,
    typer.Option(metavar="N", help="Size of a ranking with top = @top \\[default: 3].", show_default=False),
]

Questions = Annotated[
    list[Path] | None,
    typer.Option(
        "--questions",
        metavar="F",
        help="TOML file with questions of your own; repeatable.",
        show_default=False,
    ),
]
Ask = Annotated[
    list[str] | None,
    typer.Option(
        "--ask",
        metavar="NAME",
        help="Ask this question of the catalog or of F; repeatable \\[default: all of F, or the catalog].",
        show_default=False,
    ),
]


class Columns(StrEnum):
    """Which columns a data set keeps of the files that are sent to it."""

    NEEDED = "needed"  # by the questions, and those that it keeps already
    ALL = "all"  # of the layout


def changes_text(changes: DataChanges) -> str:
    return Changes(**changes.model_dump()).text


def has_flags(years: str | None, hours: str | None, min_amount: str | None, top: int | None) -> bool:
    return any(flag is not None for flag in (years, hours, min_amount, top))


def select_questions(
    base: QuestionsSection,
    parameters: Parameters,
    files: Sequence[Path] | None = None,
    names: Sequence[str] | None = None,
) -> QuestionSet:
    """Return the questions to ask: those named, else all of the files, else the catalog.

    Raises QuestionError with file and line of the first flaw.
    """
    own = read_questions(files or [], parameters, base.max_groups)
    question_set = QuestionSet.select(parameters, own, names or None)
    question_set.require_answerable(base.max_groups)
    return question_set


def read_questions(files: Sequence[Path], parameters: Parameters, max_groups: int) -> list[Question]:
    """Read the questions of all files and check them as far as possible without data.

    Raises QuestionError for a flaw or a name that is used twice, InputError for an unreadable file.
    """

    from kopitiam.results.charts.plan import require_drawable

    def check(question: Question) -> None:
        require_few_groups(question, parameters, max_groups)
        require_drawable(question)

    questions: dict[str, Question] = {}
    origins: dict[str, Path] = {}
    for file in files:
        for question in read_toml(_text_of(file), str(file), check=check):
            if question.name in questions:
                other = origins[question.name]
                raise QuestionError(f"{file}: question {question.name} is in {other} too; names must differ")
            questions[question.name], origins[question.name] = question, file
    return list(questions.values())


def _text_of(file: Path) -> str:
    try:
        if not file.is_dir() and not file.is_file() and file.exists():
            raise InputError(f"{file}: not a file; expected a file of questions")
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise InputError(f"{file}: larger than {_MAX_FILE_BYTES:,} bytes; expected a file of questions")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: not UTF-8 text; save the file as UTF-8") from None


def run_parameters(
    base: QuestionsSection, years: str | None, hours: str | None, min_amount: str | None, top: int | None
) -> Parameters:
    """Return the parameters of the settings, overridden by the flags. Raises ConfigError for a bad flag."""
    changes = {
        "years": _years(years) if years is not None else None,
        "hours": _hours(hours) if hours is not None else None,
        "min_amount": min_amount,
        "top": top,
    }
    return base.model_copy(update={k: v for k, v in changes.items() if v is not None}).parameters()


def run_arguments(question_set: QuestionSet) -> dict[str, Any]:
    """Return the arguments of `Client.open_run` for these questions."""
    values = question_set.parameters.to_dict()
    is_catalog = question_set.questions == QuestionSet.of_catalog().questions
    return {
        "years": tuple(values["years"]),
        "hours": tuple(values["hours"]),
        "min_amount": values["min_amount"],
        "top": values["top"],
        "questions": [question for question in question_set.questions if not question.is_builtin],
        "ask": None if is_catalog else [question.name for question in question_set.questions],
    }


def _years(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"(\d{4})(?:-(\d{4}))?", text)):
        raise ConfigError(f"--years {text}: expected one year or first-last, such as 2024-2025")
    return int(match[1]), int(match[2] or match[1])


def _hours(text: str) -> tuple[str, str]:
    clock = r"\d\d:\d\d(?::\d\d)?"
    if not re.fullmatch(f"{clock}-{clock}", text):
        raise ConfigError(f"--hours {text}: expected first-last, such as 06:00:00-23:00:00")
    first, last = (hour if len(hour) == 8 else f"{hour}:00" for hour in text.split("-"))
    return first, last

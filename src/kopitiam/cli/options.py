"""Flags that several commands share, and the questions that they make."""

import re
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.contracts.config import QuestionsSection
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.questions import Questions

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="F", help="Settings file \\[default: ./kopitiam.toml if there]."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of text.")]
AnswersJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON for scripts instead of text; of Q1 the first rows, summary.answers counts them all.",
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen beyond this machine although there are no tokens.")
]
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
    str | None, typer.Option(metavar="RM", help="Least amount of Q1 \\[default: 75].", show_default=False)
]
Top = Annotated[
    int | None,
    typer.Option(metavar="N", help="Customers per store in Q4 \\[default: 3].", show_default=False),
]


def has_flags(years: str | None, hours: str | None, min_amount: str | None, top: int | None) -> bool:
    return any(flag is not None for flag in (years, hours, min_amount, top))


def asked(
    base: QuestionsSection, years: str | None, hours: str | None, min_amount: str | None, top: int | None
) -> Questions:
    """The questions of the settings, with the flags above them."""
    changes = {
        "years": _years(years) if years is not None else None,
        "hours": _hours(hours) if hours is not None else None,
        "min_amount": min_amount,
        "top": top,
    }
    return base.model_copy(update={k: v for k, v in changes.items() if v is not None}).ask()


def _years(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"(\d{4})(?:-(\d{4}))?", text)):
        raise ConfigError(f"--years {text}: want one year or first-last, such as 2024-2025")
    return int(match[1]), int(match[2] or match[1])


def _hours(text: str) -> tuple[str, str]:
    clock = r"\d\d:\d\d(?::\d\d)?"
    if not re.fullmatch(f"{clock}-{clock}", text):
        raise ConfigError(f"--hours {text}: want first-last, such as 06:00:00-23:00:00")
    first, last = (hour if len(hour) == 8 else f"{hour}:00" for hour in text.split("-"))
    return first, last

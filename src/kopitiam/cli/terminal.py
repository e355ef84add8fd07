"""Answers in the terminal and as JSON, and the account of rows under them, wherever they come from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from kopitiam.cli.answer_view import first_rows, say, show_answer, title_of
from kopitiam.cli.bars import name_text, printable
from kopitiam.contracts.tables import Rejected
from kopitiam.results.answers import Answers
from kopitiam.results.forms import REJECTED_FILE
from kopitiam.results.reading import REPORT_FILE
from kopitiam.results.summary import Summary

MOST_JSON_LISTED = 10  # rows of an answer that lists rows, since it grows with the input
MOST_JSON_GROUPS = 1_000  # rows of any other answer


class Answered(Protocol):
    @property
    def answers(self) -> Answers: ...

    @property
    def summary(self) -> Summary: ...


def show_answers(
    answers: Answers,
    summary: Summary,
    examples: Sequence[Rejected],
    out: Path | None,
    console: Console | None = None,
) -> None:
    """`examples` are the first of the rejected rows; `out` is where the files are, if they are kept."""
    console = console or Console()
    for question in answers.asked.questions:
        say(console, title_of(question), indent=0, style="bold")
        show_answer(console, answers, question)
        console.print()
    _show_account(console, summary, examples, out)


def answers_as_json(result: Answered) -> dict[str, Any]:
    """The summary, and the first rows of each answer; `summary.answers` counts all of them."""
    answers = result.answers
    return {
        "summary": result.summary.to_dict(),
        "answers": {
            question.name: [
                {column: _plain(row[column]) for column in answers.schema(question.name).names}
                for row in first_rows(
                    answers, question.name, MOST_JSON_LISTED if question.lists_rows else MOST_JSON_GROUPS
                )
            ]
            for question in answers.asked.questions
        },
    }


def _plain(value: object) -> object:
    """Amounts become text in JSON, so that no reader makes floats of them."""
    return value if value is None or isinstance(value, bool | int) else str(value)


def _show_account(console: Console, summary: Summary, examples: Sequence[Rejected], out: Path | None) -> None:
    say(console, printable(_account_line(summary)), indent=0)
    for rejected in examples:
        say(console, f"{name_text(rejected.file)}, line {rejected.line}: {name_text(rejected.reason)}")
    if summary.rejected > len(examples):
        say(console, f"… {summary.rejected - len(examples):,} more")
    if out is not None:
        console.print(Text(f"Answers are in {out}"), soft_wrap=True)
        console.print(Text(f"Look at them in {out / REPORT_FILE}"), soft_wrap=True)
        if summary.rejected:
            console.print(Text(f"Rejected rows are in {out / REJECTED_FILE}"), soft_wrap=True)
    elif summary.rejected:
        console.print("Use --out to keep the rejected rows", highlight=False)


def _account_line(summary: Summary) -> str:
    unmatched = ", ".join(f"{count} {name}" for name, count in summary.unmatched.items() if count)
    coverage = summary.coverage
    if coverage is not None:
        whole = (
            f"the {coverage.durable:,} that have come"
            if coverage.expected is None
            else f"{coverage.expected:,}"
        )
        return f"provisional: {coverage.processed:,} rows of {whole} ({coverage.share:.0%})"
    return (
        f"{summary.read:,} rows read = {summary.used:,} used + {summary.rejected:,} rejected"
        f" · unmatched ids: {unmatched or 'none'} · {summary.seconds:.1f} s"
    )

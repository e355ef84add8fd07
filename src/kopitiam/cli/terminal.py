"""Answers as tables in the terminal, and the account of rows under them, wherever they come from."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from kopitiam.contracts.questions import ANSWERS, Answer
from kopitiam.contracts.tables import Rejected
from kopitiam.results.forms import REJECTED_FILE
from kopitiam.results.summary import Summary

_MOST_ROWS = 10
_NUMBERS = {"final_amount", "sellings_qty", "profit_sum", "tpv"}


class Answers(Protocol):
    """An AnswerSet, or the files of a download."""

    def schema(self, name: str) -> pa.Schema: ...

    def rows(self, name: str) -> int: ...

    def batches(self, name: str) -> Iterator[pa.RecordBatch]: ...


class Answered(Protocol):
    @property
    def answers(self) -> Answers: ...

    @property
    def summary(self) -> Summary: ...


def show_answers(answers: Answers, summary: Summary, examples: Sequence[Rejected], out: Path | None) -> None:
    """`examples` are the first of the rejected rows; `out` is where the files are, if they are kept."""
    console = Console()
    for answer in ANSWERS.values():
        console.print(_table(answer, answers))
    _show_account(console, summary, examples, out)


def answers_as_json(result: Answered) -> dict[str, Any]:
    """The summary and the answers; of Q1 the first rows only, since it grows with the input."""
    return {
        "summary": result.summary.to_dict(),
        "answers": {
            name: [
                {column: _plain(row[column]) for column in result.answers.schema(name).names}
                for row in _rows(result.answers, name, _MOST_ROWS if name == "1" else None)
            ]
            for name in ANSWERS
        },
    }


def _table(answer: Answer, answers: Answers) -> Table:
    count = answers.rows(answer.name)
    is_cut = answer.name == "1" and count > _MOST_ROWS
    table = Table(
        title=f"Q{answer.name.replace('_', '.')}  {answer.title}",
        title_justify="left",
        title_style="bold",
        caption=f"… and {count - _MOST_ROWS:,} more: {count:,} in all" if is_cut else None,
        caption_justify="left",
    )
    for column in answer.columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left")
    for row in _rows(answers, answer.name, _MOST_ROWS if is_cut else None):
        table.add_row(*(_shown(row[column]) for column in answer.columns))
    if not count:
        table.caption = "no rows"
    return table


def _rows(answers: Answers, name: str, most: int | None) -> list[dict[str, Any]]:
    rows = (row for batch in answers.batches(name) for row in batch.slice(0, most).to_pylist())
    return list(islice(rows, most))


def _shown(value: object) -> str:
    if isinstance(value, Decimal):
        return f"RM {value.quantize(Decimal('0.01')) if value == round(value, 2) else value.normalize():,}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)


def _plain(value: object) -> object:
    """Amounts become text in JSON, so that no reader makes floats of them."""
    return value if value is None or isinstance(value, bool | int) else str(value)


def _show_account(console: Console, summary: Summary, examples: Sequence[Rejected], out: Path | None) -> None:
    console.print(_account_line(summary), highlight=False)
    for rejected in examples:
        line = f"  {rejected.file}, line {rejected.line}: {rejected.reason}"
        console.print(line, highlight=False, markup=False)
    if summary.rejected > len(examples):
        console.print(f"  … {summary.rejected - len(examples):,} more", highlight=False)
    if out is not None:
        console.print(f"Answers are in {out}", highlight=False, soft_wrap=True)
        if summary.rejected:
            console.print(f"Rejected rows are in {out / REJECTED_FILE}", highlight=False, soft_wrap=True)
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

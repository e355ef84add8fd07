"""Answers in the terminal, and the account of rows under them, wherever they come from."""

from collections.abc import Callable, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from kopitiam.cli.bars import Figure, printable, show_barred
from kopitiam.contracts.money import to_text
from kopitiam.contracts.questions import ANSWERS, Answer
from kopitiam.contracts.tables import Rejected
from kopitiam.results.charts.distribution import distribution
from kopitiam.results.forms import REJECTED_FILE
from kopitiam.results.reading import REPORT_FILE, Answers
from kopitiam.results.ringgit import ringgit
from kopitiam.results.summary import Summary
from kopitiam.results.text import shorten

_MOST_ROWS = 10  # of Q1 in JSON
_MOST_LINES = 120  # of an answer
_MAX_NAME = 60  # characters; a longer name would push the figures off the line
_UNKNOWN = "unknown"

Row = dict[str, Any]


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
    shows: dict[str, Callable[[Console, Answers], None]] = {
        "1": _show_amounts,
        "2_1": _show_best_sellers,
        "2_2": _show_most_profitable,
        "3": _show_payment_values,
        "4": _show_customers,
    }
    for name, answer in ANSWERS.items():
        console.print(Text(_title(answer), "bold"))
        if answers.rows(name):
            shows[name](console, answers)
        else:
            console.print("  no rows", style="dim")
        console.print()
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


def _title(answer: Answer) -> str:
    return f"Q{answer.name.replace('_', '.')}  {answer.title}"


def _show_amounts(console: Console, answers: Answers) -> None:
    sales = distribution(answers)
    figures = [
        Figure((f"from {ringgit(to_text(found.first))}",), f"{found.count:,}", found.count)
        for found in sales.bins
    ]
    show_barred(console, figures)
    facts = {"sum": sales.total, "median": sales.median, "largest": sales.largest}
    told = (f"{name} {ringgit(amount)}" for name, amount in facts.items() if amount is not None)
    _say(console, " · ".join((f"{sales.count:,} in all", *told)))


def _show_best_sellers(console: Console, answers: Answers) -> None:
    _show_products(console, answers, "2_1", "sellings_qty", lambda quantity: f"{quantity:,}")


def _show_most_profitable(console: Console, answers: Answers) -> None:
    _show_products(console, answers, "2_2", "profit_sum", ringgit)


def _show_products(
    console: Console, answers: Answers, name: str, figure: str, shown: Callable[[Any], str]
) -> None:
    figures = [
        Figure(
            (row["year_month_created_at"], shorten(row["item_name"], _MAX_NAME)),
            shown(row[figure]),
            float(row[figure]),
        )
        for row in _lines(console, answers, name)
    ]
    show_barred(console, figures)


def _show_payment_values(console: Console, answers: Answers) -> None:
    rows = sorted(_lines(console, answers, "3"), key=_store)
    _show_by_store(
        console,
        rows,
        lambda row: Figure((row["year_half_created_at"],), ringgit(row["tpv"]), float(row["tpv"])),
    )


def _show_customers(console: Console, answers: Answers) -> None:
    rows = sorted(_lines(console, answers, "4"), key=lambda row: (*_store(row), row["rank"]))
    _show_by_store(
        console,
        rows,
        lambda row: Figure(
            (str(row["birthdate"] or _UNKNOWN),), f"{row['purchases']:,}", float(row["purchases"])
        ),
    )


def _show_by_store(console: Console, rows: list[Row], figure: Callable[[Row], Figure]) -> None:
    """Bars of all stores are to the same scale."""
    everything = [figure(row) for row in rows]
    for (store, _), of_store in groupby(rows, key=_store):
        _say(console, shorten(store, _MAX_NAME))
        show_barred(console, [figure(row) for row in of_store], indent=4, beside=everything)


def _store(row: Row) -> tuple[str, int]:
    return row["store_name"], row["store_id"]


def _lines(console: Console, answers: Answers, name: str) -> list[Row]:
    """As many as one would look at; the rest is in the files."""
    count = answers.rows(name)
    if count > _MOST_LINES:
        _say(console, f"the first {_MOST_LINES:,} of {count:,}")
    return _rows(answers, name, _MOST_LINES)


def _rows(answers: Answers, name: str, most: int | None) -> list[Row]:
    rows = (row for batch in answers.batches(name) for row in batch.slice(0, most).to_pylist())
    return list(islice(rows, most))


def _say(console: Console, line: str, indent: int = 2) -> None:
    """Folded between words on a terminal; a pipe gets whole lines."""
    if console.is_terminal:
        text = Text(printable(line), overflow="fold")
        console.print(Padding(text, (0, 0, 0, indent), expand=False))
    else:
        console.print(Text(" " * indent + printable(line)), soft_wrap=True)


def _plain(value: object) -> object:
    """Amounts become text in JSON, so that no reader makes floats of them."""
    return value if value is None or isinstance(value, bool | int) else str(value)


def _show_account(console: Console, summary: Summary, examples: Sequence[Rejected], out: Path | None) -> None:
    _say(console, _account_line(summary), indent=0)
    for rejected in examples:
        _say(console, f"{rejected.file}, line {rejected.line}: {rejected.reason}")
    if summary.rejected > len(examples):
        _say(console, f"… {summary.rejected - len(examples):,} more")
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

"""Downloads the answers of a run and prints them, as text or JSON, with the row counts below them."""

import json
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from kopitiam.cli.answer_view import first_rows, print_text, show_answer, title_of
from kopitiam.cli.columns import column_lines, name_text, printable
from kopitiam.client.downloads import first_rejected, open_download
from kopitiam.client.submitted_run import SubmittedRun
from kopitiam.contracts.tables import Rejected
from kopitiam.results.answer_files import REJECTED_FILE, REPORT_FILE, WORKBOOK_FILE
from kopitiam.results.answers import Answers
from kopitiam.results.changes import ChangesSince, compare_all
from kopitiam.results.summary import RunSummary

if TYPE_CHECKING:
    from kopitiam.client.run_handle import RunHandle

MOST_JSON_LISTED = 10  # rows of an answer that lists rows: it grows with the input
MOST_JSON_GROUPS = 1_000  # rows of any other answer
MOST_CHANGES = 40  # rows of an answer that differ
CHANGES_FILE = "changes.json"


def show_answers(
    answers: Answers,
    summary: RunSummary,
    examples: Sequence[Rejected],
    out: Path | None,
    console: Console | None = None,
) -> None:
    """Print all answers and the row counts.

    `examples` are the first rejected rows; `out` is the folder of the answer files, if they are kept.
    """
    console = console or Console()
    for question in answers.question_set.questions:
        print_text(console, title_of(question), indent=0, style="bold")
        show_answer(console, answers, question)
        console.print()
    _show_row_counts(console, summary, examples, out)


def answers_as_json(answers: Answers, summary: RunSummary) -> dict[str, Any]:
    """Return the summary and the first rows of each answer; `summary.answers` counts all rows."""
    return {
        "summary": summary.to_dict(),
        "answers": {
            question.name: [
                {column: _plain(row[column]) for column in answers.schema(question.name).names}
                for row in first_rows(
                    answers, question.name, MOST_JSON_LISTED if question.lists_rows else MOST_JSON_GROUPS
                )
            ]
            for question in answers.question_set.questions
        },
    }


def _plain(value: object) -> object:
    """Return amounts as text, so that no JSON reader converts them to floats."""
    return value if value is None or isinstance(value, bool | int) else str(value)


def _show_row_counts(
    console: Console, summary: RunSummary, examples: Sequence[Rejected], out: Path | None
) -> None:
    if summary.data is not None:
        print_text(console, printable(f"data set {summary.data.text}"), indent=0)
    print_text(console, printable(_row_counts(summary)), indent=0)
    for rejected in examples:
        print_text(console, f"{name_text(rejected.file)}, line {rejected.line}: {name_text(rejected.reason)}")
    if summary.rejected > len(examples):
        print_text(console, f"… {summary.rejected - len(examples):,} more")
    if out is not None:
        console.print(Text(f"Answers are in {out}"), soft_wrap=True)
        console.print(Text(f"Look at them in {out / REPORT_FILE}"), soft_wrap=True)
        if summary.rejected:
            console.print(Text(f"Rejected rows are in {out / REJECTED_FILE}"), soft_wrap=True)
    elif summary.rejected:
        console.print("Use --out to keep the rejected rows", highlight=False)


def _row_counts(summary: RunSummary) -> str:
    unmatched = ", ".join(f"{count} {name}" for name, count in summary.unmatched.items() if count)
    coverage = summary.coverage
    if coverage is not None:
        whole = (
            f"the {coverage.durable:,} received so far"
            if coverage.expected is None
            else f"{coverage.expected:,}"
        )
        return f"provisional: {coverage.processed:,} rows of {whole} ({coverage.share:.0%})"
    return (
        f"{summary.read:,} rows read = {summary.used:,} used + {summary.rejected:,} rejected"
        f" · unmatched ids: {unmatched or 'none'} · {summary.seconds:.1f} s"
    )


def deliver(run: SubmittedRun, out: Path | None, as_json: bool, earlier: "RunHandle | None" = None) -> None:
    """Print the answers of a run that is done. With `out`, all answer files are kept in that folder.

    With an `earlier` run over the same data set, what changed since then is printed and kept, too.
    """
    with tempfile.TemporaryDirectory(prefix="kopitiam-") as scratch:
        folder = Path(scratch) / "answers" if out is None else out
        if out is None:
            run.download(folder, forms=("parquet",))
        else:
            for file_name in (WORKBOOK_FILE, CHANGES_FILE):
                (out / file_name).unlink(missing_ok=True)  # of an earlier download
            run.download(out, since=earlier.id if earlier else None)
            from kopitiam.results.workbook import write_workbook

            write_workbook(out / WORKBOOK_FILE, *open_download(out))
        changes = _changes_since(earlier, folder, Path(scratch) / "earlier") if earlier else None
        if out is not None and changes is not None:
            (out / CHANGES_FILE).write_text(
                json.dumps(changes.to_dict(), indent=2, ensure_ascii=False) + "\n"
            )
        _show(run.id, folder, out, as_json, changes)


def _changes_since(earlier: "RunHandle", folder: Path, scratch: Path) -> ChangesSince:
    earlier.download(scratch, forms=("parquet",))
    before, summary = open_download(scratch)
    since = f"version {summary.data.version}" if summary.data else f"run {earlier.id}"
    return compare_all(before, open_download(folder)[0], since)


def deliver_provisional(run: "RunHandle", as_json: bool) -> None:
    """Print the answers over the rows processed so far."""
    with tempfile.TemporaryDirectory(prefix="kopitiam-") as scratch:
        run.download_provisional(scratch, forms=("parquet",))
        _show(run.id, Path(scratch), None, as_json)


def _show(
    run: str, folder: Path, out: Path | None, as_json: bool, changes: ChangesSince | None = None
) -> None:
    answers, summary = open_download(folder)
    if as_json:
        content = {"run": run} | answers_as_json(answers, summary)
        if changes is not None:
            content["changes"] = changes.to_dict()
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    if changes is not None:
        show_changes(changes)
    show_answers(answers, summary, first_rejected(folder), out)


def show_changes(changes: ChangesSince, console: Console | None = None) -> None:
    """Print how each answer differs from the earlier one."""
    console = console or Console()
    for of_question in changes.by_question.values():
        title = f"{title_of(of_question.question)}, since {changes.since}"
        print_text(console, title, indent=0, style="bold")
        print_text(console, of_question.text)
        rows = list(islice(of_question.cells(), MOST_CHANGES))
        if rows:
            lines = column_lines(console, of_question.titles, rows, of_question.figure_places, indent=2)
            for line in lines:
                console.print(line, soft_wrap=True)
        hidden = len(of_question.rows) + of_question.left_out - len(rows)
        if hidden:
            print_text(console, f"… {hidden:,} more")
        console.print()

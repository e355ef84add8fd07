"""Answers brought from a gateway and shown, as those of this process are."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import typer

from kopitiam.cli.terminal import answers_as_json, show_answers
from kopitiam.client.client import RunHandle
from kopitiam.client.downloads import DownloadedAnswers
from kopitiam.results.summary import Summary
from kopitiam.results.workbook import WORKBOOK_FILE, write_workbook


@dataclass(frozen=True)
class _Delivered:
    answers: DownloadedAnswers
    summary: Summary


def deliver(run: RunHandle, out: Path | None, as_json: bool) -> None:
    """Shows the answers; without `out` only what is shown is fetched, and not kept."""
    if out is not None:
        (out / WORKBOOK_FILE).unlink(missing_ok=True)  # an earlier run's
        run.download(out)
        answers = DownloadedAnswers(out)
        write_workbook(out / WORKBOOK_FILE, answers, answers.summary)
        _show(run.id, out, out, as_json)
        return
    with tempfile.TemporaryDirectory(prefix="kopitiam-") as scratch:
        run.download(scratch, forms=("parquet",))
        _show(run.id, Path(scratch), None, as_json)


def deliver_provisional(run: RunHandle, as_json: bool) -> None:
    """Shows the answers to what has come so far."""
    with tempfile.TemporaryDirectory(prefix="kopitiam-") as scratch:
        run.download_provisional(scratch, forms=("parquet",))
        _show(run.id, Path(scratch), None, as_json)


def _show(run: str, folder: Path, out: Path | None, as_json: bool) -> None:
    answers = DownloadedAnswers(folder)
    delivered = _Delivered(answers, answers.summary)
    if as_json:
        shown = {"run": run} | answers_as_json(delivered)
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        show_answers(answers, delivered.summary, answers.examples, out)

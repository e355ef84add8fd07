"""Downloads of provisional answers: all files are of one attempt."""

from pathlib import Path
from typing import Any, cast

import pytest

from kopitiam.client.calls import Calls
from kopitiam.client.downloads import download_provisional
from kopitiam.contracts.errors import RunNotFound, Unavailable
from kopitiam.questions.catalog import builtin

RUN = "0123456789abcdef"


class ChangingCalls:
    """Calls of a gateway whose answers change after this number of files."""

    def __init__(self, *lasts: int, is_named: bool = True) -> None:
        self.lasts = list(lasts)
        self.is_named = is_named
        self.sets = 0

    def provisional_attempt(self, run: str) -> str | None:
        self.sets += 1
        self.left = self.lasts.pop(0)
        return f"set{self.sets}" if self.is_named else None

    def fetch_result(self, run: str, file: str, target: Path, query: str) -> None:
        assert query.startswith("?provisional=true")
        if not self.left:
            raise RunNotFound("newer answers have replaced this attempt")
        self.left -= 1
        target.write_text(query)

    def status(self, run: str) -> Any:
        return type("Status", (), {"rejected": 0, "questions": {}})


def download(out: Path, calls: ChangingCalls) -> set[str]:
    """What was asked for, of every file that is there then."""
    download_provisional(cast(Calls, calls), RUN, out)
    assert len(list(out.iterdir())) == 3 * len(builtin()) + 2
    return {file.read_text() for file in out.iterdir()}


def test_all_files_are_of_one_attempt(tmp_path: Path) -> None:
    assert download(tmp_path, ChangingCalls(1000)) == {"?provisional=true&attempt=set1"}


def test_an_attempt_that_is_replaced_meanwhile_is_downloaded_again_from_the_start(tmp_path: Path) -> None:
    assert download(tmp_path, ChangingCalls(3, 0, 16, 1000)) == {"?provisional=true&attempt=set4"}


def test_a_gateway_that_names_no_attempt_is_accepted(tmp_path: Path) -> None:
    assert download(tmp_path, ChangingCalls(1000, is_named=False)) == {"?provisional=true"}


def test_answers_that_keep_changing_raise_unavailable_and_leave_no_summary(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="change faster"):
        download(tmp_path, ChangingCalls(*[5] * 100))
    assert not (tmp_path / "summary.json").exists()

"""Questions of runs that earlier versions opened: they are read as they were meant, for as long as runs last.

`kept_by_earlier_versions.json` is what registries hold. A new form adds an entry; no entry is changed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kopitiam.questions.question_set import QuestionSet

KEPT: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("kept_by_earlier_versions.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("entry", KEPT, ids=lambda entry: entry["form"])
def test_a_run_of_an_earlier_version_asks_what_it_asked_then(entry: dict[str, Any]) -> None:
    asked = QuestionSet.of_run(entry["kept"])
    tables = {name: [column.name for column in table.columns] for name, table in asked.tables.items()}
    answers = {q.name: [q.csv_name, *(column.name for column in q.answer_columns)] for q in asked.questions}
    assert [partial.name for partial in asked.partials] == entry["partials"]
    assert list(asked.stages.roles) == entry["stages"]
    assert tables == entry["tables"]
    assert answers == entry["answers"]

"""`kopi questions`: shows the catalog and checks definitions."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from kopitiam.cli.questions import questions
from kopitiam.contracts.errors import QuestionError
from kopitiam.questions.catalog import builtin, read_json
from kopitiam.questions.explanations import explain

OWN = """
[[question]]
name    = "sales_by_hour"
title   = "Sales by hour and weekday"
from    = "transactions"
where   = ["@year"]
by      = { weekday = "dayofweek(created_at)", hour = "hour(created_at)" }
measure = { revenue = "sum(final_amount)" }
columns = ["weekday", "hour", "revenue"]
"""
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(questions)


def kopi(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "80"})


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    return path


def test_without_files_the_catalog_is_explained() -> None:
    done = kopi()
    assert done.exit_code == 0
    for question in builtin().values():
        assert f"Q{question.name.replace('_', '.')}  {question.title}\n" in done.stdout
        assert all(f"  {sentence}\n" in done.stdout for sentence in explain(question))


def test_the_questions_of_a_file_are_explained(own: Path) -> None:
    done = kopi(own)
    assert done.exit_code == 0
    assert done.stdout.startswith(
        "sales_by_hour  Sales by hour and weekday\n  Reads final_amount and created_at"
    )
    assert done.stdout.endswith(
        f"All questions are valid. Ask them with: kopi analyze DIR --questions {own}\n"
    )
    assert "Large purchases" not in done.stdout


def test_scripts_get_json(own: Path) -> None:
    [told] = json.loads(kopi(own, "--json").stdout)["questions"]
    assert told["reads"] == {"transactions": ["final_amount", "created_at"]}
    assert told["bytes_per_row"] == {"transactions": 3.8}
    assert told["keeps"] == ["dayofweek(created_at)", "hour(created_at)"]
    assert told["aggregates"] == ["sum(final_amount)"]
    assert told["groups"] == 7 * 24
    assert told["file"] == "results_sales_by_hour.csv"
    assert told["columns"][-1] == {"name": "revenue", "kind": "money", "role": "measure", "shown": True}
    assert told["order"] == ["weekday", "hour"]
    assert read_json([told["definition"]])[0].name == "sales_by_hour"
    assert [each["name"] for each in json.loads(kopi("--json").stdout)["questions"]] == list(builtin())


def test_a_flaw_is_an_error_of_one_line(own: Path) -> None:
    own.write_text(OWN.replace("hour(created_at)", "hours(created_at)"))
    done = kopi(own)
    assert isinstance(done.exception, QuestionError)
    assert done.exception.exit_code == 2
    told = str(done.exception)
    assert told.startswith(
        f"{own}, line 7: question sales_by_hour, by.hour: there is no function hours; there are"
    )
    assert told.endswith("did you mean hour?")
    assert "\n" not in told
    assert done.stdout == ""


def test_names_of_stages_that_clash_are_a_flaw(own: Path) -> None:
    own.write_text(OWN + 'stages = { aggregate = "sum_sales_by_hour" }\n')
    assert "is the name of another stage" in str(kopi(own).exception)

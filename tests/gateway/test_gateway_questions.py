"""The catalog over HTTP, the check of definitions, and runs whose questions this version cannot read."""

import json
from typing import Any

import pytest
from gateways import Served
from sqlalchemy import update

from kopitiam.questions.catalog import builtin
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.schema import runs

OWN: dict[str, Any] = {
    "name": "sales_by_hour",
    "title": "Sales by hour",
    "from": "transactions",
    "by": {"hour": "hour(created_at)"},
    "measure": {"revenue": "sum(final_amount)"},
    "columns": ["hour", "revenue"],
}
TOML = """# what the shop wants to know
[[question]]
name = "sales_by_hour"
title = "Sales by hour"
from = "transactions"
by = { hour = "hour(created_at)" }
measure = { revenue = "sum(final_amount)" }
columns = ["hour", "revenue"]
"""


def check(client, **request: Any) -> Any:
    response = client.http.post("/api/v1/questions/check", json=request)
    assert response.status_code == 200, response.text
    return response.json()


def test_definitions_of_the_catalog_can_be_sent_back(client) -> None:
    catalog = client.http.get("/api/v1/questions").json()["questions"]
    assert [question["name"] for question in catalog] == list(builtin())
    assert all(question["builtin"] for question in catalog)
    own = [{**catalog[3]["definition"], "name": "mine", "stages": {}}]
    assert check(client, definitions=own)["flaws"] == []


@pytest.mark.parametrize("request_body", [{"definitions": [OWN]}, {"toml": TOML}])
def test_a_sound_definition_is_explained(client, request_body: dict[str, Any]) -> None:
    checked = check(client, **request_body)
    assert checked["flaws"] == []
    (question,) = checked["questions"]
    assert (question["name"], question["file"]) == ("sales_by_hour", "results_sales_by_hour.csv")
    assert question["reads"] == {"transactions": ["final_amount", "created_at"]}
    assert any("sum(final_amount), merged by adding" in line for line in question["explains"])


@pytest.mark.parametrize(
    ("before", "after", "line", "reason"),
    [
        ("sum(final_amount)", "sum(amount)", 7, "measure.revenue: transactions has no column amount"),
        ("hour(created_at)", "created_at", 6, "the keys can make"),
        (
            '"revenue"]',
            '"revenue"]\nchart = { mark = "bar", x = "hour", y = "hour" }\nstages = 1',
            10,
            "stages",
        ),
        (
            '"revenue"]',
            '"revenue"]\nchart = { mark = "rect", x = "hour", y = "revenue" }',
            9,
            "a heat map needs",
        ),
    ],
)
def test_a_flaw_is_named_with_its_line(client, before: str, after: str, line: int, reason: str) -> None:
    checked = check(client, toml=TOML.replace(before, after))
    assert checked["questions"] == []
    (flaw,) = checked["flaws"]
    assert flaw["line"] == line
    assert reason in flaw["message"]


@pytest.mark.parametrize(
    "change",
    [
        {"chart": {"mark": "histogram", "x": "count", "y": "revenue"}},
        {"chart": {"mark": "rect", "x": "hour", "y": "revenue"}},
        {"by": {"instant": "created_at"}, "columns": ["revenue"]},
    ],
)
def test_a_run_is_refused_for_what_the_check_refuses(client, change: dict[str, Any]) -> None:
    assert check(client, definitions=[OWN | change])["flaws"] != []
    refused = client.http.post("/api/v1/runs", json={"questions": {"definitions": [OWN | change]}})
    assert (refused.status_code, refused.json()["error"]) == (422, "invalid")


def test_a_run_with_unreadable_questions_does_not_hide_the_others(shared: Served, client) -> None:
    readable, unreadable = client.open_run(), client.open_run()
    kept = {**QuestionSet.of_catalog().to_dict(), "ask": ["of_tomorrow"]}
    with shared.gateway.registry._engine.begin() as connection:
        connection.execute(update(runs).where(runs.c.run == unreadable).values(questions=json.dumps(kept)))
    listed = {run["run"]: run for run in client.http.get("/api/v1/runs").json()["runs"]}
    assert listed[readable]["error"] is None
    assert "this version cannot read the questions" in listed[unreadable]["error"]
    assert client.http.get(f"/api/v1/runs/{unreadable}").json()["state"] == "open"

"""The index of answers, charts as images, and the workbook, for all questions of a run and no others."""

import json
import os
import re
import signal
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from gateway_client import GatewayClient, eventually
from gateways import Served

from drawn_charts import Chart
from kopitiam.contracts.runs import RunState
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.summary import Coverage, RowCount, RunSummary
from made_answers import MadeAnswers, question, small_answers

OWN = """
name = "sales_by_hour"
title = "Sales by hour"
from = "transactions"
where = ["@hour"]
by = { hour = "hour(created_at)" }
measure = { revenue = "sum(final_amount)" }
columns = ["hour", "revenue"]
chart = { mark = "bar", x = "hour", y = "revenue" }
"""
LISTED = """
name = "voucher_rows"
title = "Rows with vouchers"
from = "transactions"
where = ["voucher_id is not null"]
columns = ["transaction_id", "voucher_id"]
"""


def summary_of(answers: MadeAnswers) -> RunSummary:
    counts = {name: answers.rows(name) for name in answers.question_set.by_name}
    return RunSummary(answers.question_set, {"stores": RowCount(2, 0)}, {"stores": 1}, counts, 1.5)


def publish(served: Served, run: str, answers: MadeAnswers, attempt: str = "a1") -> None:
    folder = answers.write(served.client.home.attempt(run, attempt))
    (folder / "summary.json").write_text(json.dumps(summary_of(answers).to_dict()))
    for table in answers.question_set.tables:
        assert served.client.end(run, table, 0, 0).status_code == 200
    served.gateway.registry.move(run, RunState.FINAL)
    served.gateway.registry.publish_results(run, attempt, summary_of(answers).to_dict())


def get(client: GatewayClient, run: str, path: str = "", **query: Any) -> Any:
    return client.http.get(f"/api/v1/runs/{run}/results{path}", params=query)


@pytest.fixture(scope="module")
def answered(shared: Served) -> str:
    run = shared.client.open_run()
    publish(shared, run, small_answers())
    return run


@pytest.fixture(scope="module")
def own_run(shared: Served) -> str:
    """A run with its own questions, one of which has no chart."""
    definitions = [json.loads(question(text).definition) for text in (OWN, LISTED)]
    response = shared.client.http.post("/api/v1/runs", json={"questions": {"definitions": definitions}})
    assert response.status_code == 201, response.text
    run: str = response.json()["run"]
    questions = QuestionSet.from_dict(response.json()["questions"])
    revenue = [(hour, Decimal(100 * hour)) for hour in range(8, 12)]
    publish(shared, run, MadeAnswers({"sales_by_hour": revenue, "voucher_rows": [("a", 7)]}, questions))
    return run


@pytest.mark.parametrize("questions", [{"definitions": [{"x": 1}]}, {"ask": ["nothing"]}, {"ask": []}])
def test_a_run_with_invalid_questions_is_refused_with_the_reason(client, questions: dict[str, Any]) -> None:
    refused = client.http.post("/api/v1/runs", json={"questions": questions})
    assert (refused.status_code, refused.json()["error"]) == (422, "invalid")
    assert len(refused.json()["message"]) > 20


def test_the_index_describes_each_answer_and_its_chart(client, answered: str) -> None:
    index = get(client, answered).json()
    assert [answer["name"] for answer in index["answers"]] == ["1", "2_1", "2_2", "3", "4"]
    assert (index["provisional"], index["attempt"]) == (False, "a1")
    assert index["summary"] == summary_of(small_answers()).to_dict()
    third = index["answers"][3]
    assert third["title"] == "Total payment value per half-year and store"
    assert third["about"] == (
        "sum(final_amount) of transactions of 2024 to 2025, from 06:00:00 to 23:00:00 (both included), "
        "for each year_half_created_at and store_name."
    )
    assert (third["rows"], third["file"], third["note"]) == (3, "results_query_3", "")
    assert [(c["name"], c["kind"], c["role"], c["shown"], c["listed"]) for c in third["columns"]] == [
        ("year_half_created_at", "text", "key", True, True),
        ("store_id", "id", "key", False, False),
        ("store_name", "text", "attribute", True, True),
        ("tpv", "money", "measure", True, True),
        ("store_is_matched", "boolean", "matched", False, False),
    ]
    assert third["columns"][2]["matched"] == "store_is_matched"
    assert third["pivot"] == {
        "lines": "store_id",
        "label": "store_name",
        "period": "year_half_created_at",
        "figure": "tpv",
        "most_periods": 12,
    }
    assert (third["chart"]["drawn"], third["chart"]["rows"], third["chart"]["caption"]) == (3, 3, [])
    assert index["answers"][0]["chart"]["caption"][0].startswith("4 rows · sum RM 12,055,639.335 · ")


def test_own_questions_are_served_as_those_of_the_catalog(client, own_run: str) -> None:
    index = get(client, own_run).json()
    assert [(answer["name"], answer["file"]) for answer in index["answers"]] == [
        ("sales_by_hour", "results_sales_by_hour"),
        ("voucher_rows", "results_voucher_rows"),
    ]
    assert index["answers"][1]["chart"] is None
    chart = Chart(get(client, own_run, "/sales_by_hour.svg").text)
    assert [mark.told("revenue") for mark in chart.marks] == [
        f"RM {100 * hour:,}.00" for hour in range(8, 12)
    ]
    page = get(client, own_run, "/sales_by_hour/rows").json()
    assert (page["answer"], page["rows"][0]) == ("sales_by_hour", ["8", "800.0"])
    assert "Sales by hour" in get(client, own_run, "/report.html").text


def test_an_answer_without_a_chart_is_404_with_the_reason(client, own_run: str) -> None:
    refused = get(client, own_run, "/voucher_rows.svg")
    assert (refused.status_code, refused.json()["error"]) == (404, "no_chart")
    assert "voucher_rows has no chart" in refused.json()["message"]


@pytest.mark.parametrize("name", ["3", "nothing", "sales_by_hours", "..", "%2e%2e%2fsummary", "1%00"])
@pytest.mark.parametrize("place", ["{}.csv", "{}.svg", "{}/rows"])
def test_an_unknown_question_is_not_found(client, own_run: str, name, place) -> None:
    refused = get(client, own_run, f"/{place.format(name)}")
    assert refused.status_code == 404
    if refused.json().get("questions"):
        assert refused.json()["questions"] == ["sales_by_hour", "voucher_rows"]
        assert "this run answers sales_by_hour, voucher_rows" in refused.json()["message"]


def test_the_refusal_lists_the_questions_of_the_run(client, own_run: str) -> None:
    assert get(client, own_run, "/4.csv").json()["questions"] == ["sales_by_hour", "voucher_rows"]


@pytest.mark.parametrize(
    ("form", "media_type", "begin"),
    [
        ("svg", "image/svg+xml", b"<svg "),
        ("png", "image/png", b"\x89PNG\r\n"),
        ("pdf", "application/pdf", b"%PDF-"),
    ],
)
def test_charts_come_as_images(client, answered: str, form: str, media_type: str, begin: bytes) -> None:
    response = get(client, answered, f"/2_1.{form}")
    assert response.status_code == 200
    assert response.headers["content-type"].partition(";")[0] == media_type
    assert response.headers["content-disposition"] == f'attachment; filename="results_query_2_1.{form}"'
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["kopitiam-attempt"] == "a1"
    assert response.content.startswith(begin)
    assert get(client, answered, f"/2_1.{form}").content == response.content


def test_a_chart_is_compressed_if_the_client_accepts_gzip(client, answered: str) -> None:
    address = f"/api/v1/runs/{answered}/results/3.svg"
    packed = client.http.get(address, headers={"Accept-Encoding": "gzip"})
    plain = client.http.get(address, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 3


def test_a_chart_comes_with_a_policy_that_forbids_scripts(shared, client, run: str) -> None:
    publish(shared, run, small_answers(store="<script>alert(1)</script>"))
    response = get(client, run, "/3.svg")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.endswith("; sandbox")
    assert "<script" not in response.text
    assert "&lt;script&gt;alert(1)" in response.text


def test_the_chart_of_the_report_is_the_chart_itself(client, answered: str) -> None:
    picture = re.sub("<style>.*?</style>", "", get(client, answered, "/3.svg").text, flags=re.DOTALL)
    assert picture in get(client, answered, "/report.html").text


def test_charts_of_removed_answers_are_not_found(shared, client, run: str) -> None:
    publish(shared, run, small_answers())
    assert get(client, run, "/3.svg").status_code == 200
    for file in client.home.attempt(run, "a1").iterdir():
        file.unlink()
    assert get(client, run, "/3.svg").status_code == 404


def test_provisional_charts_are_those_of_their_attempt(shared, client, run: str) -> None:
    for attempt, store in (("p1", "First"), ("p2", "Second")):
        folder = small_answers(store=store).write(client.home.provisional(run, attempt))
        summary = replace(summary_of(small_answers()), coverage=Coverage(0, 0, None))
        (folder / "summary.json").write_text(json.dumps(summary.to_dict()))
    shared.gateway.registry.publish_provisional(run, "p1", {"processed": 0, "expected": None})
    index = get(client, run, provisional=True).json()
    assert (index["provisional"], index["attempt"]) == (True, "p1")
    assert index["summary"]["coverage"] == {"processed": 0, "durable": 0, "expected": None}
    shared.gateway.registry.publish_provisional(run, "p2", {"processed": 0, "expected": None})
    assert "First" in get(client, run, "/3.svg", attempt="p1").text
    assert "Second" in get(client, run, "/3.svg", provisional=True).text
    assert get(client, run, "/3/rows", attempt="p1").json()["rows"][0][2] == "First"
    assert get(client, run, "/3.svg", attempt="p9").json()["error"] == "replaced"


def test_a_dead_chart_worker_is_replaced(shared, client, answered: str) -> None:
    assert get(client, answered, "/4.png").status_code == 200
    for pid in shared.gateway.charts.renderer.pids:
        os.kill(pid, signal.SIGKILL)
    assert get(client, answered, "/4.pdf").status_code == 200


def test_the_workbook_has_all_answers(shared, client, answered: str) -> None:
    pytest.importorskip("kopitiam.results.workbook")
    response = get(client, answered, "/results.xlsx")
    assert response.status_code == 200
    assert response.headers["content-type"] == (
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    )
    assert response.content.startswith(b"PK")
    eventually(lambda: not list(shared.gateway.incoming.glob("*.xlsx")))

"""The report of a run, made from its published answers on request."""

import json
from dataclasses import replace
from decimal import Decimal

import httpx
import pytest
from gateways import Served

from kopitiam.contracts.runs import RunState
from kopitiam.landing.chunks import file_digest
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.summary import Coverage, RowCount, RunSummary
from made_answers import MadeAnswers, small_answers

SUMMARY = RunSummary(QuestionSet.of_catalog(), {"users": RowCount(10, 1)}, {"stores": 0}, {"1": 4}, 1.5)
REJECTED = 'table,file,line,reason,row\nusers,users.csv,7,no date <b>,"1,x"\n'


def report(served: Served, run: str, **parameters: bool | str) -> httpx.Response:
    return served.client.http.get(f"/api/v1/runs/{run}/results/report.html", params=parameters)


def publish(served: Served, run: str, answers: MadeAnswers) -> None:
    served.client.seal(run)
    folder = answers.write(served.client.home.attempt(run, "a1"))
    (folder / "summary.json").write_text(json.dumps(SUMMARY.to_dict()))
    served.gateway.registry.move(run, RunState.FINAL)
    (folder / "results_query_1.csv").write_text("transaction_id,final_amount\n")
    digests = {file.name: file_digest(file) for file in folder.iterdir()}
    served.gateway.registry.publish_results(run, "a1", SUMMARY.to_dict(), digests=digests)


def test_a_report_shows_the_published_answers(shared: Served) -> None:
    run = shared.client.open_run(label="January & February")
    publish(shared, run, small_answers(store="<script>alert(1)</script>"))
    rejected = shared.client.home.rejected(run) / "users-client-00000.csv"
    rejected.parent.mkdir(parents=True, exist_ok=True)
    rejected.write_text(REJECTED)
    response = report(shared, run)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    for text in ("January &amp; February", "RM 12,055,387.76", "no date &lt;b&gt;", "&lt;script&gt;alert"):
        assert text in response.text
    assert "<script" not in response.text
    assert report(shared, run).content == response.content


def test_a_report_shows_what_changed_since_another_run(shared: Served) -> None:
    earlier, later = shared.client.open_run(), shared.client.open_run()
    publish(shared, earlier, small_answers(store="North"))
    answers = small_answers(store="North")
    changed = replace(
        answers, tables=answers.tables | {"3": [("2024-H1", 1, "North", Decimal("115000"), True)]}
    )
    publish(shared, later, changed)
    text = report(shared, later, since=earlier).text
    for shown in (f"Since run {earlier}", "2 gone, 1 changed.", "-RM 922.885", "-0.8"):
        assert shown in text
    path = f"/api/v1/runs/{later}/results/changes.json"
    changes = shared.client.http.get(path, params={"since": earlier}).json()
    assert {name: changes[name]["same"] for name in changes} == {"1": 4, "2_1": 2, "2_2": 2, "3": 0, "4": 3}
    assert changes["3"]["rows"][0] == {
        "state": "changed",
        "year_half_created_at": "2024-H1",
        "store_id": 1,
        "store_name": "North",
        "before": {"tpv": "115922.8850"},
        "after": {"tpv": "115000.0000"},
        "times": 1,
    }
    assert shared.client.http.get(path).status_code == 422
    assert shared.client.http.get(path, params={"since": "f" * 24}).status_code == 404


def test_the_error_of_a_failed_run_has_no_paths_of_the_service(shared: Served, run: str) -> None:
    reason = "Spark failed: reading file file:///srv/home/landing/chunk-00000.parquet, see '/srv/my logs/x'"
    shared.gateway.registry.move(run, RunState.FAILED, reason)
    http = shared.client.http
    texts = [
        report(shared, run).text,
        http.get(f"/api/v1/runs/{run}").text,
        http.get("/api/v1/runs", params={"search": run}).text,
        http.get(f"/api/v1/runs/{run}/events").text,
    ]
    for text in texts:
        assert "chunk-00000.parquet" in text
        assert "/srv" not in text


def test_a_report_before_the_answers_gets_409(shared: Served, run: str) -> None:
    response = report(shared, run)
    assert (response.status_code, response.json()["error"]) == (409, "not_ready")


@pytest.mark.parametrize(("state", "status"), [(RunState.FAILED, 409), (RunState.ENDED, 410)])
def test_a_failed_run_has_no_report_and_gives_the_reason(
    shared: Served, run: str, state: RunState, status: int
) -> None:
    shared.gateway.registry.move(run, state, "3 rows too many")
    response = report(shared, run)
    assert response.status_code == status
    assert "3 rows too many" in response.json()["message"]


def test_removed_answers_have_no_report(shared: Served, run: str) -> None:
    publish(shared, run, small_answers())
    for file in shared.client.home.attempt(run, "a1").iterdir():
        file.unlink()
    response = report(shared, run)
    assert (response.status_code, response.json()["error"]) == (404, "not_found")


def test_a_run_that_is_not_done_has_a_provisional_report(shared: Served, run: str) -> None:
    folder = small_answers().write(shared.client.home.provisional(run, "p1"))
    summary = RunSummary(QuestionSet.of_catalog(), {}, {}, {}, 1.5, Coverage(0, 0, None))
    (folder / "summary.json").write_text(json.dumps(summary.to_dict()))
    shared.gateway.registry.publish_provisional(run, "p1", {"processed": 0, "expected": None})
    assert "Provisional: 0 rows" in report(shared, run, provisional=True).text


def test_a_report_belongs_to_the_owner_of_its_run(serve) -> None:
    mine = serve(tokens={"ana": "t" * 20, "ben": "u" * 20})
    run = mine.client.http.post(
        "/api/v1/runs", json={}, headers={"Authorization": f"Bearer {'t' * 20}"}
    ).json()["run"]
    place = f"/api/v1/runs/{run}/results/report.html"
    assert mine.client.http.get(place).status_code == 401
    assert mine.client.http.get(place, headers={"Authorization": f"Bearer {'u' * 20}"}).status_code == 404
    assert mine.client.http.get(place, headers={"Authorization": f"Bearer {'t' * 20}"}).status_code == 409


@pytest.mark.parametrize("is_served_before", [False, True])
def test_damaged_answers_are_not_served(shared: Served, is_served_before: bool) -> None:
    run = shared.client.open_run()
    publish(shared, run, small_answers())
    places = [f"/api/v1/runs/{run}/results/{name}" for name in ("1.csv", "1.parquet", "summary.json")]
    if is_served_before:
        assert [shared.client.http.get(place).status_code for place in places] == [200] * 3
    for file in shared.client.home.attempt(run, "a1").iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    for place in places:
        refused = shared.client.http.get(place)
        assert (refused.status_code, refused.json()["error"]) == (500, "damaged"), place
    assert report(shared, run).status_code == 500

"""Runs over HTTP: opened once per key, listed page by page, read, ended."""

import socket
from urllib.parse import urlsplit

import pytest
from gateway_client import GatewayClient, eventually, parquet_of

from catalog_tables import TABLES
from kopitiam.contracts.runs import RunState, is_run_id

NOBODYS = "0" * 24


def test_a_new_run_is_open_and_asks_the_default_questions(client: GatewayClient) -> None:
    response = client.http.post("/api/v1/runs", json={"label": "May"})
    assert response.status_code == 201
    status = response.json()
    assert is_run_id(status["run"])
    assert (status["label"], status["state"], status["error"]) == ("May", "open", None)
    assert status["questions"] == {
        "years": [2024, 2025],
        "hours": ["06:00:00", "23:00:00"],
        "min_amount": "75",
        "top": 3,
    }
    assert set(status["tables"]) == set(TABLES)
    assert client.status(status["run"]) == status


def test_the_parameters_of_the_questions_may_be_set(client: GatewayClient) -> None:
    parameters = {"years": [2020, 2021], "hours": ["00:00:00", "01:00:00"], "min_amount": "0.5", "top": 9}
    run = client.open_run(questions=parameters)
    assert client.status(run)["questions"] == parameters


@pytest.mark.parametrize(
    "body",
    [
        {"questions": {"years": [2025, 2024]}},
        {"questions": {"hours": ["25:00:00", "26:00:00"]}},
        {"questions": {"min_amount": "much"}},
        {"questions": {"top": 0}},
        {"questions": {"top": "many"}},
        {"label": "x" * 201},
        {"label": "a\x00b"},
        {"label": 5},
        {"idempotency_key": ""},
        {"surprise": 1},
        [],
    ],
)
def test_an_invalid_request_is_refused_with_a_reason(client: GatewayClient, body) -> None:
    response = client.http.post("/api/v1/runs", json=body)
    assert response.status_code == 422
    assert response.json()["error"] == "invalid"
    assert response.json()["message"]


def test_a_body_that_is_not_json_is_refused(client: GatewayClient) -> None:
    response = client.http.post("/api/v1/runs", content=b"{", headers={"Content-Type": "application/json"})
    assert response.status_code == 422


def test_a_run_is_opened_and_sealed_with_curl(client: GatewayClient) -> None:
    """curl sends no body, or JSON with the Content-Type of a form."""
    opened = client.http.post("/api/v1/runs")
    assert (opened.status_code, opened.json()["label"]) == (201, "")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    response = client.http.post("/api/v1/runs", content=b'{"label": "May"}', headers=form)
    assert (response.status_code, response.json()["label"]) == (201, "May")
    end = f"/api/v1/runs/{response.json()['run']}/tables/users/end"
    for headers in (form, {}):
        sealed = client.http.post(end, content=b'{"chunks": 0, "rows": 0}', headers=headers)
        assert (sealed.status_code, sealed.json()["sealed"]) == (200, True)
    for headers, status in ((form, 422), ({"Content-Type": "text/csv"}, 422)):
        assert client.http.post(end, content=b"chunks=0", headers=headers).status_code == status


def test_a_page_of_another_site_opens_no_run(client: GatewayClient) -> None:
    response = client.http.post("/api/v1/runs", headers={"Origin": "https://elsewhere"})
    assert (response.status_code, response.json()["error"]) == (403, "origin")
    form = client.http.post("/api/v1/runs", headers={"Origin": client.url})
    assert (form.status_code, form.json()["error"]) == (415, "media_type")


def test_a_post_that_stalls_gets_408(serve) -> None:
    client = serve(idle_seconds=0.3).client
    place = urlsplit(client.url)
    with socket.create_connection((place.hostname, place.port), timeout=60) as stalling:
        stalling.sendall(b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        assert stalling.recv(65536).startswith(b"HTTP/1.1 408")


def test_only_the_owner_who_calls_too_fast_gets_429(serve) -> None:
    tokens = {"anna": "anna-token", "ben": "ben-token"}
    client = serve(tokens=tokens, max_requests_per_second=1).client
    anna, ben = (GatewayClient(client.url, client.home.path, token) for token in tokens.values())
    refused = eventually(lambda: (seen := anna.http.get("/api/v1/runs")).status_code == 429 and seen)
    assert refused.json()["error"] == "too_fast"
    assert int(refused.headers["Retry-After"]) > 0
    assert ben.http.get("/api/v1/runs").status_code == 200
    for path in ("/healthz", "/readyz", "/metrics", "/"):
        assert {anna.http.get(path).status_code for _ in range(10)} == {200}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_endless_post_gets_413(client: GatewayClient, is_streamed: bool) -> None:
    def pieces():
        yield b'{"label": "'
        for _ in range(64):
            yield b"x" * 65536

    content = pieces() if is_streamed else b"".join(pieces())
    response = client.http.post("/api/v1/runs", content=content)
    assert response.status_code == 413
    assert response.json()["error"] == "too_large"


def test_the_same_idempotency_key_gives_the_same_run(client: GatewayClient) -> None:
    request = {"label": "May", "idempotency_key": "the-same-key"}
    answers = [client.http.post("/api/v1/runs", json=request) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 200, 200]
    run = answers[0].json()["run"]
    assert {answer.json()["run"] for answer in answers} == {run}
    client.cancel(run)
    again = client.http.post("/api/v1/runs", json=request)
    assert (again.status_code, again.json()["state"]) == (200, "ended")


@pytest.mark.parametrize("other", [{"label": "June"}, {"questions": {"top": 4}}])
def test_an_idempotency_key_with_another_request_is_a_conflict(client: GatewayClient, other) -> None:
    key = {"idempotency_key": f"key-{other}"}
    client.open_run(label="May", **key)
    response = client.http.post("/api/v1/runs", json={"label": "May"} | key | other)
    assert (response.status_code, response.json()["error"]) == (409, "conflict")


def test_no_more_runs_may_be_open_than_allowed(serve) -> None:
    client = serve(max_open_runs=2).client
    first, _ = client.open_run(), client.open_run()
    response = client.http.post("/api/v1/runs", json={})
    assert (response.status_code, response.json()["error"]) == (429, "too_many_runs")
    assert int(response.headers["Retry-After"]) > 0
    client.cancel(first)
    client.open_run()


def test_runs_are_listed_newest_first_page_by_page(serve) -> None:
    client = serve().client
    opened = [client.open_run(label=str(n)) for n in range(5)]
    pages, query = [], {"limit": 2}
    while True:
        page = client.http.get("/api/v1/runs", params=query).json()
        pages.append([entry["run"] for entry in page["runs"]])
        if page["next"] is None:
            break
        query = {"limit": 2, "before": page["next"]}
    newest_first = opened[::-1]
    assert pages == [newest_first[:2], newest_first[2:4], newest_first[4:]]
    whole = client.http.get("/api/v1/runs").json()
    assert [entry["run"] for entry in whole["runs"]] == newest_first
    assert whole["next"] is None


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "before=x", "before=nan~" + NOBODYS, "before=1~..", "before=1~%00"],
)
def test_an_invalid_page_is_refused(client: GatewayClient, query: str) -> None:
    response = client.http.get(f"/api/v1/runs?{query}")
    assert (response.status_code, response.json()["error"]) == (422, "invalid")


def test_an_unknown_run_is_not_found_by_any_call(client: GatewayClient) -> None:
    place = f"/api/v1/runs/{NOBODYS}"
    body = parquet_of()
    for response in (
        client.http.get(place),
        client.http.delete(place),
        client.http.get(f"{place}/events"),
        client.http.get(f"{place}/rejected.csv"),
        client.http.get(f"{place}/results/1.csv"),
        client.http.get(f"{place}/tables/users/chunks"),
        client.put(NOBODYS, 0, body),
        client.end(NOBODYS),
    ):
        assert (response.status_code, response.json()["error"]) == (404, "not_found"), response.request.url


def test_an_ended_run_has_no_files_and_accepts_no_more(client: GatewayClient, run: str) -> None:
    assert client.put(run, 0).status_code == 201
    assert client.put_csv(run, "user_id,birthdate\n1,\nbad,\n", 1).json()["rejected"] == 1
    assert client.files_of(run)
    ended = client.cancel(run)
    assert (ended.status_code, ended.json()["state"], ended.json()["error"]) == (200, "ended", "cancelled")
    assert client.files_of(run) == []
    place = f"/api/v1/runs/{run}"
    for response in (
        client.put(run, 0),
        client.put(run, 2),
        client.end(run, chunks=2, rows=11),
        client.http.put(f"{place}/tables/users/rejected", content=b"x", headers={"Content-Type": "text/csv"}),
        client.http.get(f"{place}/results/1.csv"),
    ):
        assert (response.status_code, response.json()["error"]) == (410, "over"), response.request.url
    assert client.files_of(run) == []


def test_force_end_is_idempotent(client: GatewayClient, run: str) -> None:
    first = client.cancel(run)
    assert client.cancel(run).json() == first.json()


def test_a_sealed_run_can_still_be_ended(client: GatewayClient, run: str) -> None:
    client.seal(run)
    assert client.cancel(run).json()["state"] == "ended"


def test_answers_get_409_until_they_are_published(client: GatewayClient, run: str) -> None:
    for state in ("open", "sealed"):
        response = client.http.get(f"/api/v1/runs/{run}/results/1.csv")
        assert (response.status_code, response.json()["error"]) == (409, "not_ready")
        assert response.json()["state"] == state
        client.seal(run)


def test_answers_come_in_three_forms_once_published(shared, run: str) -> None:
    client, registry = shared.client, shared.gateway.registry
    client.seal(run)
    folder = client.home.attempt(run, "a1")
    folder.mkdir(parents=True)
    files = {
        "1.csv": "results_query_1.csv",
        "2_1.json": "results_query_2_1.json",
        "summary.json": "summary.json",
    }
    for content, name in enumerate(files.values()):
        folder.joinpath(name).write_text(str(content))
    registry.move(run, RunState.FINAL)
    registry.publish_results(run, "a1", {"answers": {"1": 5}, "unmatched": {"stores": 2, "users": 1}})

    status = client.status(run)
    assert (status["state"], status["answers"], status["unmatched"]) == ("done", {"1": 5}, 3)
    for content, name in enumerate(files):
        assert client.http.get(f"/api/v1/runs/{run}/results/{name}").text == str(content)
    gone = client.http.get(f"/api/v1/runs/{run}/results/4.parquet")
    assert gone.status_code == 404
    for name in ("5.csv", "1.exe", "1", "1.csv.csv", "..%2f1.csv"):
        assert client.http.get(f"/api/v1/runs/{run}/results/{name}").status_code == 404
    assert client.put(run).status_code == 410

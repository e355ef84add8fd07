"""The gateway conforms to its OpenAPI document for generated requests."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, reject, settings, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from standin_pipeline import answering

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    response_schema_conformance,
    content_type_conformance,
]


CALLS = [
    ("GET", "/api/v1/runs"),
    ("POST", "/api/v1/runs"),
    ("GET", "/api/v1/runs/{run}"),
    ("DELETE", "/api/v1/runs/{run}"),
    ("GET", "/api/v1/runs/{run}/rejected"),
    ("GET", "/api/v1/runs/{run}/rejected.csv"),
    ("GET", "/api/v1/runs/{run}/results"),
    ("GET", "/api/v1/runs/{run}/results/{answer}/rows"),
    ("GET", "/api/v1/runs/{run}/results/{answer}/rows-behind"),
    ("GET", "/api/v1/runs/{run}/results/changes.json"),
    ("GET", "/api/v1/runs/{run}/results/report.html"),
    ("GET", "/api/v1/runs/{run}/results/results.xlsx"),
    ("GET", "/api/v1/runs/{run}/results/summary.json"),
    ("GET", "/api/v1/runs/{run}/results/{answer}.{form}"),
    ("GET", "/api/v1/runs/{run}/tables/{table}/chunks"),
    ("PUT", "/api/v1/runs/{run}/tables/{table}/chunks/{number}"),
    ("POST", "/api/v1/runs/{run}/tables/{table}/end"),
    ("PUT", "/api/v1/runs/{run}/tables/{table}/rejected"),
    ("POST", "/api/v1/runs/{run}/files"),
    ("GET", "/api/v1/runs/{run}/files"),
    ("PUT", "/api/v1/runs/{run}/files/{file}/chunks/{number}"),
    ("GET", "/api/v1/runs/{run}/files/{file}/chunks"),
    ("PUT", "/api/v1/runs/{run}/files/{file}/rejected"),
    ("POST", "/api/v1/runs/{run}/files/{file}/end"),
    ("POST", "/api/v1/runs/{run}/seal"),
    ("GET", "/api/v1/data"),
    ("GET", "/api/v1/data/{name}"),
    ("DELETE", "/api/v1/data/{name}"),
    ("POST", "/api/v1/data/{name}/sql"),
    ("GET", "/api/v1/data/{name}/sql/{query}"),
    ("DELETE", "/api/v1/data/{name}/sql/{query}"),
    ("GET", "/api/v1/data/{name}/sql/{query}/rows"),
    ("GET", "/api/v1/data/{name}/sql/{query}.{form}"),
    ("GET", "/api/v1/questions"),
    ("POST", "/api/v1/questions/check"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/about"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
]
STREAM = "/api/v1/runs/{run}/events"  # has no end


@pytest.fixture(scope="module")
def document(shared) -> Any:
    return schemathesis.openapi.from_url(f"{shared.client.url}/openapi.json")


def modes(path: str) -> list[GenerationMode]:
    """Calls without parameters cannot get invalid ones."""
    return list(GenerationMode) if "/runs" in path or "{name}" in path else [GenerationMode.POSITIVE]


CASES = [(mode, method, path) for method, path in CALLS for mode in modes(path)]


@pytest.mark.parametrize(("mode", "method", "path"), CASES)
def test_every_call_conforms_for_generated_requests(shared, document, mode, method: str, path: str) -> None:
    run = shared.client.open_run(**({"data": {"name": "any", "upload": True}} if "/files" in path else {}))
    operation = document[path][method]

    @settings(max_examples=25, suppress_health_check=list(HealthCheck), database=None)
    @given(data=strategies.data())
    def conforms(data: strategies.DataObject) -> None:
        try:
            case = data.draw(operation.as_strategy(generation_mode=mode))
        except Unsatisfiable:
            reject()
        if "{run}" in path and data.draw(strategies.booleans()):
            case.path_parameters = (case.path_parameters or {}) | {"run": run}
        response = case.call_and_validate(checks=CHECKS)
        assert response.status_code < 500

    with answering(shared.gateway, are_real=True):
        conforms()


def test_the_document_describes_every_call(shared) -> None:
    document = shared.client.http.get("/openapi.json").json()
    assert set(document["paths"]) == {path for _, path in CALLS} | {STREAM}
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            assert call["description"], (method, path)


def test_the_document_declares_the_bearer_token_of_every_call_that_needs_one(shared) -> None:
    document = shared.client.http.get("/openapi.json").json()
    (scheme,) = document["components"]["securitySchemes"].items()
    assert (scheme[1]["type"], scheme[1]["scheme"]) == ("http", "bearer")
    is_open = {"/healthz", "/readyz", "/api/v1/about"}
    for path, calls in document["paths"].items():
        for call in calls.values():
            assert call.get("security", []) == ([] if path in is_open else [{scheme[0]: []}]), path

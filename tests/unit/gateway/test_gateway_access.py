"""Tokens: who a caller is, and which settings make no sense."""

from typing import Any

import pytest
from pydantic import SecretStr
from starlette.requests import Request

from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import ConfigError
from kopitiam.gateway.access import ANYBODY, Access, Caller
from kopitiam.gateway.problems import Refusal


def access(root: str = "", /, **tokens: str) -> Access:
    secrets = {name: SecretStr(token) for name, token in tokens.items()}
    return Access(GatewaySection(tokens=secrets, admin_token=SecretStr(root)))


def request(authorization: str | None) -> Request:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    scope: dict[str, Any] = {"type": "http", "headers": headers}
    return Request(scope)


def test_without_tokens_anybody_may_do_anything() -> None:
    caller = access().caller(request(None))
    assert caller == Caller(ANYBODY, is_admin=True)
    assert caller.sees is None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_token_tells_its_owner(scheme: str) -> None:
    caller = access(anna="a-token", ben="b-token").caller(request(f"{scheme}   b-token "))
    assert caller == Caller("ben", is_admin=False)
    assert caller.sees == "ben"
    assert caller.may_see("ben")
    assert not caller.may_see("anna")


def test_the_administrator_sees_all() -> None:
    caller = access("root-token", anna="a-token").caller(request("Bearer root-token"))
    assert caller.is_admin
    assert caller.sees is None
    assert caller.may_see("anna")


def test_an_admin_token_alone_locks_the_door() -> None:
    with pytest.raises(Refusal):
        access("root-token").caller(request(None))


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "a-token",
        "Basic a-token",
        "Bearer a-toke",
        "Bearer a-tokenn",
        "Bearer ÿ",
    ],
)
def test_anything_else_is_unauthorized_and_not_repeated(authorization) -> None:
    with pytest.raises(Refusal) as refused:
        access("root-token", anna="a-token").caller(request(authorization))
    assert refused.value.status == 401
    assert "a-toke" not in str(refused.value.body)


@pytest.mark.parametrize(
    "tokens",
    [{"anna": ""}, {"anna": "same", "ben": "same"}, {"anna": "root-token"}, {"admin": "other"}],
)
def test_tokens_that_open_more_than_meant_are_refused(tokens: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="tokens"):
        access("root-token", **tokens)

"""Bearer tokens and their owners."""

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.requests import Request

from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import ConfigError
from kopitiam.gateway.access import ANYBODY, Access, Caller
from kopitiam.gateway.context import bearer_token
from kopitiam.gateway.problems import Refusal


def access(root: str = "", /, **tokens: str) -> Access:
    secrets = {name: SecretStr(token) for name, token in tokens.items()}
    return Access(GatewaySection(tokens=secrets, admin_token=SecretStr(root)))


def token(authorization: str | None) -> str | None:
    """The token in the header of a request, as the calls get it."""
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    scope: dict[str, Any] = {"type": "http", "headers": headers}
    credentials = asyncio.run(bearer_token(Request(scope)))
    return credentials.credentials if credentials else None


def test_without_tokens_every_caller_is_an_administrator() -> None:
    caller = access().caller(token(None))
    assert caller == Caller(ANYBODY, is_admin=True)
    assert caller.visible_owner is None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_token_identifies_its_owner(scheme: str) -> None:
    caller = access(anna="a-token", ben="b-token").caller(token(f"{scheme}   b-token "))
    assert caller == Caller("ben", is_admin=False)
    assert caller.visible_owner == "ben"
    assert caller.may_see("ben")
    assert not caller.may_see("anna")


def test_the_administrator_sees_the_runs_of_all_owners() -> None:
    caller = access("root-token", anna="a-token").caller(token("Bearer root-token"))
    assert caller.is_admin
    assert caller.visible_owner is None
    assert caller.may_see("anna")


def test_with_only_an_admin_token_a_token_is_required() -> None:
    with pytest.raises(Refusal):
        access("root-token").caller(token(None))


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
def test_anything_else_is_unauthorized_and_not_repeated(authorization: str | None) -> None:
    with pytest.raises(Refusal) as refused:
        access("root-token", anna="a-token").caller(token(authorization))
    assert refused.value.status == 401
    assert "a-toke" not in str(refused.value.body)


@pytest.mark.parametrize(
    "tokens",
    [{"anna": ""}, {"anna": "same", "ben": "same"}, {"anna": "root-token"}, {"admin": "other"}],
)
def test_empty_and_ambiguous_tokens_are_refused(tokens: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="tokens"):
        access("root-token", **tokens)

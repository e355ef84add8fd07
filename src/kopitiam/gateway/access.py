"""Who is calling: tokens, compared in constant time, and which runs a caller may see."""

import hashlib
import hmac
from dataclasses import dataclass

from fastapi import Request

from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import ConfigError
from kopitiam.gateway.problems import Refusal

ANYBODY = "anybody"
ADMIN = "admin"


@dataclass(frozen=True)
class Caller:
    owner: str
    is_admin: bool

    @property
    def sees(self) -> str | None:
        """The owner whose runs the caller sees; None for all."""
        return None if self.is_admin else self.owner

    def may_see(self, owner: str) -> bool:
        return self.is_admin or owner == self.owner


class Access:
    def __init__(self, settings: GatewaySection) -> None:
        tokens = [(name, token.get_secret_value(), False) for name, token in settings.tokens.items()]
        if admin := settings.admin_token.get_secret_value():
            tokens.append((ADMIN, admin, True))
        given = [token for _, token, _ in tokens]
        if not all(given) or len(set(given)) < len(given) or ADMIN in settings.tokens:
            raise ConfigError(
                f"gateway.tokens: want tokens that differ, none empty, none of an owner {ADMIN!r}"
            )
        self._tokens = [(name, _digest(token), is_admin) for name, token, is_admin in tokens]

    def caller(self, request: Request) -> Caller:
        if not self._tokens:
            return Caller(ANYBODY, is_admin=True)
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        found, presented = None, _digest(given.strip())
        for name, token, is_admin in self._tokens:  # all of them, so that time tells nothing
            if hmac.compare_digest(token, presented):
                found = Caller(name, is_admin)
        if scheme.lower() != "bearer" or found is None:
            raise Refusal(401, "unauthorized", "a valid token is needed: Authorization: Bearer <token>")
        return found


def _digest(token: str) -> bytes:
    """Of one length for all: comparing texts of different lengths would tell the length."""
    return hashlib.sha256(token.encode()).digest()

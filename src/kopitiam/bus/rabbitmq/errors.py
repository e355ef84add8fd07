"""Errors of pika in plain words, and `Completion`, which passes them to the waiting thread."""

import ssl
import threading
from collections.abc import Callable

from pika import exceptions as amqp
from pika.adapters.utils import connection_workflow as connecting

from kopitiam.contracts.errors import BusUnavailable

_REFUSALS = ("ACCESS_REFUSED", "NOT_ALLOWED")
_MEANINGS: tuple[tuple[type[BaseException], str], ...] = (
    (TimeoutError, "no answer"),
    (connecting.AMQPConnectorStackTimeout, "no answer"),
    (amqp.AMQPHeartbeatTimeout, "the broker stopped sending heartbeats"),
    (amqp.ConnectionBlockedTimeout, "the broker blocks publishing: it is short of memory or disk"),
    (amqp.IncompatibleProtocolError, "the server does not speak AMQP"),
    (amqp.StreamLostError, "connection lost"),
    (amqp.ProbableAuthenticationError, "connection lost"),
    (amqp.ProbableAccessDeniedError, "connection lost"),
)


def describe(error: BaseException) -> str:
    """The cause, as one line for people."""
    error = _root(error)
    if is_refusal(error):
        return _refusal(error)
    if isinstance(error, amqp.ConnectionClosed | amqp.ChannelClosed):
        return str(error.reply_text)
    for kind, meaning in _MEANINGS:
        if isinstance(error, kind):
            return meaning
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def is_refusal(error: BaseException) -> bool:
    """The broker refused us; retrying would not help."""
    error = _root(error)
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, amqp.ProbableAuthenticationError | amqp.ProbableAccessDeniedError)
        and any(word in str(error) for word in _REFUSALS)
    )


def _refusal(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, amqp.ProbableAuthenticationError):
        return "user or password refused"
    return "no access to this virtual host"


def is_channel_closed(error: BaseException) -> bool:
    """Only the channel was closed, not the connection."""
    return isinstance(error, amqp.ChannelClosed)


def is_channel_closed_by_broker(error: BaseException) -> bool:
    """The broker closed the channel because of a request on it."""
    return isinstance(error, amqp.ChannelClosedByBroker)


def _root(error: BaseException) -> BaseException:
    """pika wraps the original error once per connection phase."""
    while True:
        inner = getattr(error, "exception", None) or next(reversed(getattr(error, "exceptions", ())), None)
        if inner is None and error.args and isinstance(error.args[0], BaseException):
            inner = error.args[0]
        if not isinstance(inner, BaseException):
            return error
        error = inner


class Completion:
    """How a thread waits for an operation of the I/O thread."""

    def __init__(self) -> None:
        self._is_settled = threading.Event()
        self._failure: str | None = None
        self.is_abandoned = False

    @property
    def is_settled(self) -> bool:
        return self._is_settled.is_set()

    def settle(self, reason: str | None = None) -> None:
        """Only the first call has an effect."""
        if not self.is_settled:
            self._failure = reason
            self._is_settled.set()

    def wait(self, seconds: float, timeout_reason: Callable[[], str]) -> None:
        """Raises `BusUnavailable` if the operation failed, or with `timeout_reason` if it takes longer."""
        if not self._is_settled.wait(seconds):
            self.is_abandoned = True
            raise BusUnavailable(timeout_reason())
        if self._failure is not None:
            raise BusUnavailable(self._failure)

"""What pika raises, in words: the one place where its errors are read."""

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
    (amqp.AMQPHeartbeatTimeout, "the broker fell silent"),
    (amqp.ConnectionBlockedTimeout, "the broker takes no messages: it is short of memory or disk"),
    (amqp.IncompatibleProtocolError, "what answers there does not speak AMQP"),
    (amqp.StreamLostError, "connection lost"),
    (amqp.ProbableAuthenticationError, "connection lost"),
    (amqp.ProbableAccessDeniedError, "connection lost"),
)


def reason(error: BaseException) -> str:
    """One line for people."""
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
    """Asking again would not help."""
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
    """The channel alone was closed, not the connection under it."""
    return isinstance(error, amqp.ChannelClosed)


def is_channel_closed_by_broker(error: BaseException) -> bool:
    """The broker closed the channel over what was asked of it there."""
    return isinstance(error, amqp.ChannelClosedByBroker)


def _root(error: BaseException) -> BaseException:
    """pika wraps the first error in one for each phase that it ends."""
    while True:
        inner = getattr(error, "exception", None) or next(reversed(getattr(error, "exceptions", ())), None)
        if inner is None and error.args and isinstance(error.args[0], BaseException):
            inner = error.args[0]
        if not isinstance(inner, BaseException):
            return error
        error = inner


class Completion:
    def __init__(self) -> None:
        self._is_settled = threading.Event()
        self._trouble: str | None = None
        self.is_abandoned = False

    @property
    def is_settled(self) -> bool:
        return self._is_settled.is_set()

    def settle(self, trouble: str | None = None) -> None:
        """The first call counts."""
        if not self.is_settled:
            self._trouble = trouble
            self._is_settled.set()

    def wait(self, seconds: float, timeout_reason: Callable[[], str]) -> None:
        """`BusUnavailable` with the trouble there was, or with that of `timeout_reason` when time is up."""
        if not self._is_settled.wait(seconds):
            self.is_abandoned = True
            raise BusUnavailable(timeout_reason())
        if self._trouble is not None:
            raise BusUnavailable(self._trouble)

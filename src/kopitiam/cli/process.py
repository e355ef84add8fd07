"""Logs and signals of a `kopi` process: log lines on the error stream, signals as exceptions."""

import logging
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger


def set_up_logs(node: str, *, is_verbose: bool, as_json: bool) -> None:
    """Log to the error stream: as text, or as JSON lines with the fields of each event."""
    import structlog  # a command that logs nothing starts faster without it

    def name_node(_: "WrappedLogger", __: str, event: "EventDict") -> "EventDict":
        event["node"] = node
        return event

    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_node,
    ]
    render: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    logging.basicConfig(level=logging.INFO if is_verbose else logging.WARNING, handlers=[handler], force=True)
    handler.addFilter(_is_not_from_py4j)
    for noisy in ("pika", "alembic", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Drop records of py4j, some of them on the root logger: it also raises each error that it logs."""
    return "py4j" not in record.pathname


_RAISE_AGAIN_SECONDS = 0.05


class Terminated(BaseException):
    """SIGTERM was received."""


def raise_on_signals() -> None:
    """Make SIGTERM raise Terminated, so that everything is closed before the process exits.

    Python only prints an exception that a signal raises in a callback of the interpreter, such as that of a
    weak reference, and goes on. Then the exception is raised again a little later.
    """
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second SIGTERM kills the process
    raise Terminated


def _raise_again(ignored: "sys.UnraisableHookArgs") -> None:
    kind = ignored.exc_type
    if not issubclass(kind, (KeyboardInterrupt, Terminated)):
        sys.__unraisablehook__(ignored)
        return

    def raise_kind(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise kind

    signal.signal(signal.SIGALRM, raise_kind)
    signal.setitimer(signal.ITIMER_REAL, _RAISE_AGAIN_SECONDS)  # not now: the callback is still running

"""Logs on the error stream: lines for people, or JSON with node, run and chunk for programs."""

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


def set_up_logs(node: str, *, is_verbose: bool, as_json: bool) -> None:
    def name_node(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
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
    handler.addFilter(_is_news)
    for noisy in ("pika", "alembic", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


def _is_news(record: logging.LogRecord) -> bool:
    """py4j logs, also in the name of nobody, each error that it also raises: of killed JVMs, say."""
    return "py4j" not in record.pathname

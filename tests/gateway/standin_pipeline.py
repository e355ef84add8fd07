"""A stand-in for a pipeline that only makes provisional answers, with dummy or small real files."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

from kopitiam.contracts.messages import PROVISIONAL_QUEUE, Message, ProvisionalWanted
from kopitiam.contracts.parameters import Parameters
from kopitiam.gateway.context import Gateway
from kopitiam.questions.catalog import builtin
from kopitiam.results.answer_files import SUMMARY_FILE
from kopitiam.results.summary import Coverage, RunSummary
from made_answers import small_answers

SUMMARY = RunSummary(Parameters(), {}, {}, {}, seconds=1.0)


@contextmanager
def answering(gateway: Gateway, are_real: bool = False) -> Iterator[list[str]]:
    """Answer requests inside the block. Gives the requested runs, one entry per request."""
    requested: list[str] = []

    def provide(message: Message) -> None:
        assert isinstance(message, ProvisionalWanted)
        requested.append(message.run)
        attempt = f"attempt{len(requested)}"
        folder = gateway.home.provisional(message.run, attempt)
        folder.mkdir(parents=True)
        account = gateway.registry.run_account(message.run)
        coverage = Coverage.of(account.processed, account.figures.tables)
        head = json.dumps({"attempt": attempt, "provisional": True, "coverage": asdict(coverage)})
        for answer in builtin().values():
            for form in ("csv", "parquet"):
                (folder / answer.file_name(form)).write_text(attempt)
            (folder / answer.file_name("json")).write_text(f'{head[:-1]}, "rows": [\n]}}\n')
        summary = replace(SUMMARY, coverage=coverage).to_dict()
        (folder / SUMMARY_FILE).write_text(json.dumps(summary | {"attempt": attempt}))
        if are_real:
            small_answers().write(folder)
        gateway.registry.publish_provisional(message.run, attempt, asdict(coverage))

    subscription = gateway.bus.consume(PROVISIONAL_QUEUE, provide)
    try:
        yield requested
    finally:
        subscription.cancel()

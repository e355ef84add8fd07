"""A pipeline that only answers wishes for provisional answers, with files that say nothing or little."""

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
    """Gives the runs whose answers were asked for, each as often as it was. Real ones can be read."""
    asked: list[str] = []

    def provide(message: Message) -> None:
        assert isinstance(message, ProvisionalWanted)
        asked.append(message.run)
        attempt = f"attempt{len(asked)}"
        folder = gateway.home.provisional(message.run, attempt)
        folder.mkdir(parents=True)
        account = gateway.registry.run_account(message.run)
        coverage = Coverage.of(account.processed, account.figures.tables)
        head = json.dumps({"attempt": attempt, "provisional": True, "coverage": asdict(coverage)})
        for answer in builtin().values():
            for form in ("csv", "parquet"):
                (folder / answer.file_name(form)).write_text(attempt)
            (folder / answer.file_name("json")).write_text(f'{head[:-1]}, "rows": [\n]}}\n')
        said = replace(SUMMARY, coverage=coverage).to_dict()
        (folder / SUMMARY_FILE).write_text(json.dumps(said | {"attempt": attempt}))
        if are_real:
            small_answers().write(folder)
        gateway.registry.publish_provisional(message.run, attempt, asdict(coverage))

    subscription = gateway.bus.consume(PROVISIONAL_QUEUE, provide)
    try:
        yield asked
    finally:
        subscription.cancel()

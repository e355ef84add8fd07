"""A pipeline that only answers wishes for provisional answers, with files that say nothing or little."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from kopitiam.contracts.messages import PROVISIONAL_QUEUE, Message, ProvisionalWanted
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.gateway.context import Gateway
from kopitiam.results.forms import SUMMARY_FILE, form_name
from kopitiam.results.summary import Coverage, Summary
from made_answers import small_answers

SUMMARY = Summary(Questions(), {}, {}, {}, seconds=1.0, coverage=Coverage(0, 0, None))


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
        for form in ("csv", "json", "parquet"):
            for answer in ANSWERS.values():
                (folder / form_name(answer, form)).write_text(attempt)
        (folder / SUMMARY_FILE).write_text(attempt)
        if are_real:
            small_answers().write(folder)
            (folder / SUMMARY_FILE).write_text(json.dumps(SUMMARY.to_dict()))
        progress = gateway.registry.progress(message.run)
        rows = sum(volume.rows for shards in progress.values() for volume in shards.values())
        gateway.registry.publish_provisional(message.run, attempt, {"processed": rows})

    subscription = gateway.bus.consume(PROVISIONAL_QUEUE, provide)
    try:
        yield asked
    finally:
        subscription.cancel()

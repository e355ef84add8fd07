"""Where the answers of a run lie, and what to say when they do not."""

import io
import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

from kopitiam.contracts.errors import RunOver
from kopitiam.contracts.runs import Run, RunState
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.problems import Refusal
from kopitiam.gateway.provisional import provisional_attempt
from kopitiam.landing.layout import KEYS
from kopitiam.results.reading import AnswerFiles
from kopitiam.storage.port import Key

T = TypeVar("T")
_TRIES = 3  # to read what is replaced by something newer at that very moment


def read_answers(
    gateway: Gateway,
    run: Run,
    read: Callable[[Key], T],
    provisional: Callable[[Gateway, Run], Key] | None = None,
) -> T:
    """`read` gets the folder of the answers, or of provisional ones where they are wanted and still count.

    Provisional answers are removed when others have taken their place; who comes too late reads those.
    """
    for _ in range(_TRIES):
        find = published_answers if provisional is None or run.state.is_over else provisional
        try:
            return read(find(gateway, run))
        except FileNotFoundError:
            run = gateway.registry.get_run(run.run)
    raise Refusal(404, "not_found", "these answers have been cleaned up")


def published_answers(gateway: Gateway, run: Run) -> Key:
    published = gateway.registry.results(run.run)
    if published is not None:
        return KEYS.attempt(run.run, published.attempt)
    if run.state is RunState.ENDED:
        raise Refusal(410, "over", f"the run was ended: {run.error or 'cancelled'}")
    why = f": {run.error}" if run.error else ""
    raise Refusal(409, "not_ready", f"no answers: the run is {run.state.value}{why}", state=run.state.value)


def fresh_provisional(gateway: Gateway, run: Run) -> Key:
    """About all that was processed when they were asked for; the answers themselves, if they come first."""
    try:
        return KEYS.provisional(run.run, provisional_attempt(gateway, run))
    except RunOver:
        published = gateway.registry.results(run.run)
        if published is None:
            raise
        return KEYS.attempt(run.run, published.attempt)


def latest_provisional(gateway: Gateway, run: Run) -> Key:
    """Whoever leafs through pages is not worth a new merge of partials each time."""
    made = gateway.registry.provisional(run.run)
    return KEYS.provisional(run.run, made.attempt) if made else fresh_provisional(gateway, run)


def are_provisional(gateway: Gateway, run: Run, folder: Key) -> bool:
    """They may have become the answers while they were asked for."""
    published = gateway.registry.results(run.run)
    return published is None or folder != KEYS.attempt(run.run, published.attempt)


def answer_files(gateway: Gateway, folder: Key) -> AnswerFiles:
    return AnswerFiles(lambda name: gateway.storage.open(folder / name))


def rejected_lines(gateway: Gateway, run: Run) -> Iterator[str]:
    """Of all files, with one header."""
    for position, file in enumerate(gateway.storage.find(f"{KEYS.rejected(run.run)}/*.csv")):
        content = io.BufferedReader(gateway.storage.open(file))
        with io.TextIOWrapper(content, "utf-8", errors="replace", newline="") as text:
            yield from itertools.islice(text, 1 if position else 0, None)

"""Where the answers of a run lie, and what to say when they do not."""

import io
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

import pyarrow as pa

from kopitiam.contracts.errors import RunOver
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import Run, RunState
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.problems import Refusal
from kopitiam.gateway.provisional import provisional_attempt
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.forms import SUMMARY_FILE
from kopitiam.results.reading import MAX_REJECTED_FIELD, AnswerFiles
from kopitiam.results.summary import Coverage
from kopitiam.storage.port import Key

T = TypeVar("T")
_TRIES = 3  # to read what is replaced by something newer at that very moment


def read_answers(
    gateway: Gateway,
    run: Run,
    read: Callable[[Key], T],
    provisional: Callable[[Gateway, Run], Key] | None = None,
    attempt: str | None = None,
) -> T:
    """`read` gets the folder of the answers, or of provisional ones where they are wanted and still count.

    Provisional answers are removed when others have taken their place; who comes too late reads those, unless
    it wants one `attempt` and no other.
    """
    if attempt is not None:
        try:
            return read(_one_attempt(gateway, run, attempt))
        except FileNotFoundError:
            raise Refusal(404, "replaced", "others have taken the place of these answers") from None
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


def _one_attempt(gateway: Gateway, run: Run, attempt: str) -> Key:
    published = gateway.registry.results(run.run)
    is_published = published is not None and published.attempt == attempt
    return KEYS.attempt(run.run, attempt) if is_published else KEYS.provisional(run.run, attempt)


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


def attempt_of(folder: Key) -> str:
    return folder.name.partition("=")[2]


def are_provisional(run: Run, folder: Key) -> bool:
    """Answers that were asked for as such may be the final ones by then."""
    return folder == KEYS.provisional(run.run, attempt_of(folder))


def coverage_now(gateway: Gateway, run: Run, made: Coverage) -> Coverage:
    """Of provisional answers: more may have come since they were made."""
    return made.of_now(gateway.registry.table_states(run.run))


def summary_now(gateway: Gateway, run: Run, folder: Key) -> dict[str, Any]:
    """As the file has it, but for the coverage."""
    with open_answer(gateway, run, folder / SUMMARY_FILE) as file:
        said: dict[str, Any] = json.loads(file.read())
    if "coverage" in said:
        said["coverage"] = asdict(coverage_now(gateway, run, Coverage(**said["coverage"])))
    return said


def answer_files(gateway: Gateway, run: Run, folder: Key) -> AnswerFiles:
    asked = QuestionSet.from_dict(run.questions)
    return AnswerFiles(asked, lambda name: open_answer(gateway, run, folder / name))


def open_answer(gateway: Gateway, run: Run, key: Key) -> pa.NativeFile:
    """One that is damaged is not served."""
    require_sound(gateway, run, key)
    return gateway.storage.open(key)


def require_sound(gateway: Gateway, run: Run, key: Key) -> None:
    if not are_provisional(run, key.parent):
        gateway.sound_answers.require(key, lambda: gateway.registry.results(run.run))


def rejected_lines(gateway: Gateway, run: Run) -> Iterator[str]:
    """Of all files, with one header."""
    for position, file in enumerate(gateway.storage.find(f"{KEYS.rejected(run.run)}/*.csv")):
        content = io.BufferedReader(gateway.storage.open(file))
        with io.TextIOWrapper(content, "utf-8", errors="replace", newline="") as text:
            yield from itertools.islice(_bounded_lines(text), 1 if position else 0, None)


def _bounded_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines, without the rest of one that is longer than a rejected row can be."""
    while line := text.readline(MAX_REJECTED_FIELD):
        yield line
        while len(line) == MAX_REJECTED_FIELD and not line.endswith("\n"):
            line = text.readline(MAX_REJECTED_FIELD)

"""Attempts at the steps of runs: counted in the registry before the work begins, so that a death counts too.

What ends an attempt through no fault of its runs gives it back: a stop, a lost place, a registry or a storage
that is away. Runs that an attempt ended badly with are tried again one at a time, with nothing else at work
on this engine: if it dies again, it is known by whom.
"""

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kopitiam.contracts.batches import Step, verdict
from kopitiam.contracts.errors import (
    AlreadyPublished,
    IllegalTransition,
    KopitiamError,
    PartialsDiffer,
    RunNotFound,
    RunOver,
    StaleEpoch,
    Unavailable,
)
from kopitiam.registry.records import Fence

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

DIED = "Spark's process died; the operator's log says where its last words are kept"
_LOOK_SECONDS = 0.2
_NOT_ITS_FAULT = (Unavailable, StaleEpoch, RunOver, RunNotFound, IllegalTransition, AlreadyPublished)
_log = logging.getLogger(__name__)


class Gate:
    """A readers-writer lock: many pass at once, or one alone. A waiting loner keeps others from beginning."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._changed = threading.Condition()
        self._inside = 0
        self._waiting = 0
        self._is_taken = False

    @contextlib.contextmanager
    def passing(self, alone: bool = False) -> Iterator[None]:
        with self._changed:
            self._waiting += alone
            try:
                self._await(lambda: not (self._is_taken or (self._inside if alone else self._waiting)))
            finally:
                self._waiting -= alone
                self._changed.notify_all()
            self._inside += 1
            self._is_taken = alone
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._is_taken = False
                self._changed.notify_all()

    def _await(self, is_free: Callable[[], bool]) -> None:
        while not is_free():
            if self._stopping.is_set():
                raise Unavailable("the pipeline is stopping")
            self._changed.wait(_LOOK_SECONDS)


@dataclass(frozen=True)
class Attempts:
    registry: "Registry"
    fence: Fence
    stopping: threading.Event
    is_engine_dead: Callable[[], bool]
    gate: Gate
    uncommitted: list[str] = field(default_factory=list)  # attempts at the batch that is committed next
    _in_hand: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verdicts(self, step: Step, runs: Iterable[str]) -> tuple[dict[str, str], list[str]]:
        """Why runs are not tried again, by run; and those to be tried alone, the most suspect first."""
        of_node = None if step == "final" else self.fence.name  # a final step is one pipeline's at a time
        found = self.registry.attempts(runs, step, of_node)
        given_up = {run: reason for run, earlier in found.items() if (reason := verdict(step, earlier))}
        suspects = [run for run in found if run not in given_up]
        return given_up, sorted(suspects, key=lambda run: -len(found[run]))

    @contextlib.contextmanager
    def trying(self, step: Step, runs: Sequence[str], alone: bool = False) -> Iterator[str]:
        """Counts from here on. One that comes to its end counts until it is given back, or its runs' step is
        committed."""
        attempt = uuid.uuid4().hex
        with self.gate.passing(alone):
            with self._lock:
                self._in_hand.add(attempt)
            try:
                self.registry.begin_attempt(attempt, step, runs, self.fence)
                yield attempt
            except Exception as error:
                self._end(attempt, error)
                raise

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """A commit forgets the attempts at its batch; one that fails is no fault of theirs."""
        ended, self.uncommitted[:] = list(self.uncommitted), []
        try:
            yield
        except Exception:
            self.give_back(*ended)
            raise
        self.done(*ended)

    def done(self, *attempts: str) -> None:
        """The registry knows that they ended well."""
        with self._lock:
            self._in_hand.difference_update(attempts)

    def give_back(self, *attempts: str) -> None:
        for attempt in attempts:
            if self._is_taken_out(attempt):
                self._write(lambda of=attempt: self.registry.withdraw_attempt(of))  # type: ignore[misc]

    def give_back_all(self) -> None:
        """The pipeline stops in good order."""
        self.give_back(*self._all())

    def blame_all(self, reason: str) -> None:
        """The engine died under all that were at work."""
        for attempt in self._all():
            if self._is_taken_out(attempt):
                self._write(lambda of=attempt: self.registry.fail_attempt(of, reason))  # type: ignore[misc]

    def _all(self) -> list[str]:
        with self._lock:
            return list(self._in_hand)

    def _is_taken_out(self, attempt: str) -> bool:
        with self._lock:
            is_there = attempt in self._in_hand
            self._in_hand.discard(attempt)
            return is_there

    def _end(self, attempt: str, error: Exception) -> None:
        if self.stopping.is_set() or isinstance(error, _NOT_ITS_FAULT):
            return self.give_back(attempt)
        if not self._is_taken_out(attempt):
            return None
        if isinstance(error, PartialsDiffer):
            reason = str(error)
        elif self.is_engine_dead():
            reason = DIED
        elif isinstance(error, KopitiamError):
            return self._write(lambda: self.registry.withdraw_attempt(attempt))  # the run fails for it now
        else:
            reason = f"of an error that nobody expected ({type(error).__name__}); the operator's log has it"
        return self._write(lambda: self.registry.fail_attempt(attempt, reason))

    def _write(self, change: Callable[[], None]) -> None:
        """As far as it can be: what could not be given back counts, and two more may follow."""
        try:
            change()
        except Unavailable as error:
            _log.warning("an attempt is not accounted for: %s", error)

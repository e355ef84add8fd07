"""Attempts at the steps of runs. The registry counts them before the work begins, so that a crash counts too.

An attempt is withdrawn if its runs did not cause its end: at a stop, a stale epoch, or while the registry or
the storage is unavailable. Runs with a failed attempt are retried one at a time, with nothing else running on
this engine: if the engine dies again, that run is the cause.
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
    AttemptFailed,
    IllegalTransition,
    KopitiamError,
    RunNotFound,
    RunOver,
    StaleEpoch,
    Unavailable,
)
from kopitiam.registry.records import Fence

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

DIED = "Spark's process died; the operator's log says where Spark's log is kept"
_POLL_SECONDS = 0.2
_NOT_CAUSED_BY_RUNS = (Unavailable, StaleEpoch, RunOver, RunNotFound, IllegalTransition, AlreadyPublished)
_log = logging.getLogger(__name__)


class Gate:
    """A readers-writer lock: many steps run at once, or one alone. While a step waits to run alone, no other
    step begins."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._changed = threading.Condition()
        self._inside = 0
        self._waiting = 0
        self._is_taken = False

    @contextlib.contextmanager
    def passing(self, alone: bool = False) -> Iterator[None]:
        """Raises Unavailable if the pipeline stops before the gate is free."""
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
            self._changed.wait(_POLL_SECONDS)


@dataclass(frozen=True)
class Attempts:
    """The attempts of one pipeline on one engine."""

    registry: "Registry"
    fence: Fence
    stopping: threading.Event
    is_engine_dead: Callable[[], bool]
    gate: Gate
    uncommitted: list[str] = field(default_factory=list)  # attempts at the batch that is committed next
    _running: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verdicts(self, step: Step, runs: Iterable[str]) -> tuple[dict[str, str], list[str]]:
        """Reasons to fail runs after their last attempt, by run; and the runs to retry alone, those with most
        failed attempts first."""
        of_node = None if step == "final" else self.fence.name  # only one pipeline claims a final step
        failed = self.registry.attempts(runs, step, of_node)
        given_up = {run: reason for run, attempts in failed.items() if (reason := verdict(step, attempts))}
        suspects = [run for run in failed if run not in given_up]
        return given_up, sorted(suspects, key=lambda run: -len(failed[run]))

    @contextlib.contextmanager
    def trying(self, step: Step, runs: Sequence[str], alone: bool = False) -> Iterator[str]:
        """Begins an attempt, and returns its id. It counts until it is withdrawn or the step of its runs is
        committed. An error in the block fails or withdraws it."""
        attempt = uuid.uuid4().hex
        with self.gate.passing(alone):
            with self._lock:
                self._running.add(attempt)
            try:
                self.registry.begin_attempt(attempt, step, runs, self.fence)
                yield attempt
            except Exception as error:
                self._end(attempt, error)
                raise

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """The commit in the block deletes the attempts at its batch. If it fails, they are withdrawn."""
        ended, self.uncommitted[:] = list(self.uncommitted), []
        try:
            yield
        except Exception:
            self.withdraw(*ended)
            raise
        self.done(*ended)

    def done(self, *attempts: str) -> None:
        """Removes attempts that succeeded; the registry has deleted them already."""
        with self._lock:
            self._running.difference_update(attempts)

    def withdraw(self, *attempts: str) -> None:
        for attempt in attempts:
            if self._remove(attempt):
                self._write(lambda id_=attempt: self.registry.withdraw_attempt(id_))  # type: ignore[misc]

    def withdraw_all(self) -> None:
        """Withdraw all attempts when the pipeline stops on purpose."""
        self.withdraw(*self._all())

    def fail_all(self, reason: str) -> None:
        """Fail all running attempts: their engine died."""
        for attempt in self._all():
            if self._remove(attempt):
                self._write(lambda id_=attempt: self.registry.fail_attempt(id_, reason))  # type: ignore[misc]

    def _all(self) -> list[str]:
        with self._lock:
            return list(self._running)

    def _remove(self, attempt: str) -> bool:
        """Returns whether the attempt was running."""
        with self._lock:
            is_running = attempt in self._running
            self._running.discard(attempt)
            return is_running

    def _end(self, attempt: str, error: Exception) -> None:
        if self.stopping.is_set() or isinstance(error, _NOT_CAUSED_BY_RUNS):
            return self.withdraw(attempt)
        if not self._remove(attempt):
            return None
        if isinstance(error, AttemptFailed):
            reason = str(error)
        elif self.is_engine_dead():
            reason = DIED
        elif isinstance(error, KopitiamError):
            # The run fails with this error.
            return self._write(lambda: self.registry.withdraw_attempt(attempt))
        else:
            reason = f"with an unexpected error ({type(error).__name__}); the operator's log has it"
        return self._write(lambda: self.registry.fail_attempt(attempt, reason))

    def _write(self, change: Callable[[], None]) -> None:
        """Best effort: an attempt that cannot be withdrawn keeps counting, and two more are allowed."""
        try:
            change()
        except Unavailable as error:
            _log.warning("the end of an attempt is not recorded: %s", error)

"""What callers may rely on, whichever database is behind it.

Every method is one transaction, safe to call from many threads and processes at once. A method that
changes a run raises `RunNotFound` for an id that is not there. All of them raise `RegistryUnavailable`
when the database cannot do its part; if that happened while a commit was under way, the change may
have been made: ask again, since every change is idempotent or refused the second time.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kopitiam.contracts.runs import ChunkRecord, LogEntry, Run, RunFigures, RunState, Span, TableState

EndOutcome = Literal["sealed", "missing", "extra", "rows_differ", "conflict"]


@dataclass(frozen=True)
class Opened:
    run: Run
    is_new: bool  # False: an earlier call with the same key opened it


@dataclass(frozen=True)
class Registered:
    """`conflict`: another body is durable under this number, and `chunk` is that one."""

    outcome: Literal["stored", "same", "conflict"]
    chunk: ChunkRecord


@dataclass(frozen=True)
class Ended:
    """What END led to. The table is sealed, or nothing was changed and the figures say why not.

    `conflict`: the table was sealed before, with other figures than those now asked for.
    """

    outcome: EndOutcome
    chunks: int  # durable
    rows: int
    expected_chunks: int  # as END said
    expected_rows: int
    missing: tuple[Span, ...] = ()
    extra: tuple[Span, ...] = ()

    @property
    def sealed(self) -> bool:
        return self.outcome == "sealed"


@dataclass(frozen=True)
class Published:
    attempt: str
    figures: dict[str, Any]
    published_at: float


@dataclass(frozen=True)
class Fence:
    """A lease under which something is written: if its epoch is stale, `StaleEpoch` and no effect."""

    name: str
    epoch: int


class RegistryPort(Protocol):
    # -- runs

    def open_run(
        self,
        questions: dict[str, Any],
        label: str,
        owner: str,
        *,
        idempotency_key: str | None,
        lease_seconds: float,
        shards: int,
        max_open_runs: int | None = None,
    ) -> Opened:
        """The same key of the same owner gives the same run, or `IdempotencyConflict` if it asks for
        something else. `TooManyRuns` if the owner has `max_open_runs` in state open already."""

    def get_run(self, run: str) -> Run: ...

    def list_runs(self, owner: str | None, limit: int, before: tuple[float, str] | None = None) -> list[Run]:
        """Newest first; `before` is the `cursor` of the last run of the page before."""

    def figures(self, run: str) -> RunFigures: ...

    def table_states(self, run: str) -> dict[str, TableState]: ...

    def version(self, run: str) -> int:
        """Grows with every change of the run or its tables, though not when its lease is renewed."""

    def renew_lease(self, run: str, lease_seconds: float) -> None:
        """`RunOver` if the run is over."""

    def runs_in(self, *states: RunState) -> list[Run]:
        """Oldest first."""

    def count_runs(self, state: RunState) -> int: ...

    def expired_runs(self) -> list[Run]:
        """Open runs whose client has not been heard of for longer than the lease."""

    def move(self, run: str, to: RunState, error: str | None = None, fence: Fence | None = None) -> Run:
        """`IllegalTransition` unless the run's state, read under a lock, may go there."""

    def force_end(
        self, run: str, reason: str, only_if_expired: bool = False, fence: Fence | None = None
    ) -> bool:
        """True if this call ended it; False if it was over, or its lease has been renewed meanwhile."""

    # -- chunks and their log

    def register_chunk(
        self, run: str, table: str, number: int, *, digest: str, rows: int, bytes: int, rejected: int
    ) -> Registered:
        """Idempotent by number and digest; renews the lease. A chunk that is durable is answered
        `same` or `conflict` until the run is over. A new one raises `TableSealed` after the table's
        END, and `RunOver` when the run is not open."""

    def chunks(self, run: str, table: str) -> list[ChunkRecord]: ...

    def durable_numbers(self, run: str, table: str) -> tuple[Span, ...]: ...

    def end_table(self, run: str, table: str, chunks: int, rows: int, rejected: int = 0) -> Ended:
        """Seals the table if exactly these chunks and rows are durable, and with the last table the
        run. `rejected` rows were set aside before they came into any chunk; they are counted once.
        Repeating it with the same figures is fine. `RunOver` if the run failed or was ended."""

    def expectations(self, run: str) -> dict[str, dict[int, tuple[int, int]]]:
        """For each sealed table and every shard, zero included: the chunks and rows to process."""

    def read_log(self, shard: int, after: int, max_chunks: int, max_bytes: int) -> list[LogEntry]:
        """Chunks in the order in which they became durable: whoever has seen a sequence number will
        never see a smaller one appear. Numbers have no gaps but those of forgotten runs. The first
        entry comes even if it is larger than `max_bytes`, so that a reader always gets on."""

    def last_sequence(self, shard: int) -> int:
        """0 before the first chunk; never goes back, whatever is forgotten."""

    # -- answers

    def claim_final(self, run: str, holder: str, fence: Fence | None = None) -> bool:
        """Sealed becomes final, for one holder only; True again for the same one. `RunOver`,
        `IllegalTransition` if the run is over or still open."""

    def publish_results(
        self, run: str, attempt: str, figures: dict[str, Any], fence: Fence | None = None
    ) -> None:
        """The run is done with this attempt's answers. The same attempt again changes nothing,
        another one is refused: `AlreadyPublished`."""

    def results(self, run: str) -> Published | None: ...

    # -- clean-up

    def finished_before(self, moment: float) -> list[Run]: ...

    def forget_chunks(self, run: str) -> None:
        """Chunks and log entries go, figures stay. Only for a run that is over."""

    def forget_run(self, run: str) -> bool:
        """Everything goes. False if it was gone already. Only for a run that is over."""

    # -- leases

    def acquire_lease(self, name: str, holder: str, ttl_seconds: float) -> int | None:
        """The epoch: the old one if the holder has the lease, a larger one if it was free or had
        expired. None while another holds it."""

    def renew(self, name: str, holder: str, epoch: int, ttl_seconds: float) -> bool:
        """False if the lease has expired or is another's: stop, and acquire it again."""

    def holds(self, name: str, epoch: int) -> bool: ...

    def release(self, name: str, holder: str, epoch: int) -> bool: ...

    # -- health

    def check(self) -> None:
        """Writes and reads; raises `RegistryUnavailable` if either fails."""

    def close(self) -> None: ...

"""What callers may rely on, whichever database is behind it.

Every method is one transaction, safe to call from many threads and processes at once. A method that
changes a run raises `RunNotFound` for an id that is not there. All of them raise `RegistryUnavailable`
when the database cannot do its part; if that happened while a commit was under way, the change may
have been made: ask again, since every change is idempotent or refused the second time.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from kopitiam.contracts.barriers import Snapshot
from kopitiam.contracts.batches import Attempt, Batch, Committed, Partial, Step
from kopitiam.contracts.identity import Identity
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.contracts.runs import ChunkRecord, LogEntry, Run, RunState, TableState
from kopitiam.contracts.stages import ByTable
from kopitiam.registry.records import Ended, Fence, Lease, Opened, Published, Registered, RunAccount

__all__ = ["Ended", "Fence", "Lease", "Opened", "Published", "Registered", "RegistryPort", "RunAccount"]


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

    def list_runs(
        self,
        owner: str | None,
        limit: int,
        before: tuple[float, str] | None = None,
        *,
        states: tuple[RunState, ...] = (),
        search: str = "",
    ) -> list[Run]:
        """Newest first; `before` is the `cursor` of the last run of the page before. `search` is looked
        for in labels, whatever the case, and at the beginning of ids."""

    def count_listed(self, owner: str | None, *, states: tuple[RunState, ...] = (), search: str = "") -> int:
        """How many runs all pages of such a listing have together."""

    def most_shards(self) -> int:
        """Of any run that is under way; 0 if there is none."""

    def account(self, run: str) -> RunAccount:
        """Figures, expectations, progress and answers, all of one moment."""

    def table_states(self, run: str) -> dict[str, TableState]: ...

    def version(self, run: str) -> int:
        """Grows with every change of the run, its tables or its progress, though not when its lease is
        renewed or its answers are claimed."""

    def renew_lease(self, run: str, lease_seconds: float) -> None:
        """`RunOver` if the run is over."""

    def renew_open_runs(self, fence: Fence | None = None) -> None:
        """Every open run has at least a full lease again: its client could not be heard for a while."""

    def runs_in(self, *states: RunState) -> list[Run]:
        """Oldest first."""

    def count_runs(self, state: RunState) -> int: ...

    def expired_runs(self) -> list[Run]:
        """Open runs whose client has not been heard of for longer than the lease."""

    def move(self, run: str, to: RunState, error: str | None = None, fence: Fence | None = None) -> Run:
        """`IllegalTransition` unless the run's state, read under a lock, may go there."""

    def force_end(
        self,
        run: str,
        reason: str,
        only_if_expired: bool = False,
        fence: Fence | None = None,
        as_of: float | None = None,
    ) -> bool:
        """True if this call ended it; False if it was over, or its lease has been renewed meanwhile.

        With `only_if_expired` the lease must have run out both now and at `as_of`: a registry's clock that
        jumps after the caller compared it with its own ends no run."""

    # -- chunks and their log

    def register_chunk(
        self,
        run: str,
        table: str,
        number: int,
        *,
        digest: str,
        rows: int,
        bytes: int,
        rejected: int,
        landed: str | None = None,
        is_beside: bool = False,
    ) -> Registered:
        """Idempotent by number and digest; renews the lease. A chunk that is durable is answered
        `same` or `conflict` until the run is over. A new one raises `TableSealed` after the table's
        END, and `RunOver` when the run is not open."""

    def chunks(self, run: str, table: str) -> list[ChunkRecord]: ...

    def end_table(self, run: str, table: str, chunks: int, rows: int, rejected: int = 0) -> Ended:
        """Seals the table if exactly these chunks and rows are durable, and with the last table the
        run. `rejected` rows were set aside before they came into any chunk; they are counted once.
        Repeating it with the same figures is fine. `RunOver` if the run failed or was ended."""

    def expectations(self, run: str) -> ByTable:
        """For each sealed table and every shard, zero included: what there is to process."""

    def log_head(self, lane: int, after: int, max_chunks: int, max_bytes: int) -> int:
        """How far a reader may go from `after`: to the last entry within the bounds, or, if they cut
        nothing off, to the lane's last sequence, so that the holes of forgotten runs are passed over.
        The first entry always fits, so that a reader always gets on."""

    def read_span(self, lane: int, after: int, upto: int) -> list[LogEntry]:
        """Chunks in the order in which they became durable: whoever has seen a sequence number will
        never see a smaller one appear. Numbers have no gaps but those of forgotten runs."""

    def last_sequence(self, lane: int) -> int:
        """0 before the first chunk; never goes back, whatever is forgotten."""

    # -- the stream

    def positions(self, lanes: Iterable[int]) -> dict[int, int]:
        """Up to which sequence each lane has been processed and committed; 0 if never."""

    def commit_batch(self, batch: Batch, fence: Fence | None = None) -> Committed:
        """Positions move, counters are added to, partials are kept: all of it, once. A batch that was
        committed before changes nothing, and is answered as it was the first time. `ForeignCheckpoint`
        if it has other spans than then, does not begin where its lanes stand, or goes beyond the log.
        Runs that are over or gone are ignored; the version of the others grows."""

    def progress(self, run: str) -> ByTable:
        """What was processed, where anything was. It stays when the run is over."""

    def partials(self, run: str) -> list[Partial]:
        """By path."""

    def replace_partials(
        self, run: str, old: Iterable[str], new: Partial, fence: Fence | None = None
    ) -> bool:
        """The partial `new` stands for those with the paths `old`, which were merged into it; also True
        if it does so already. False, and nothing changed, if one of them is not there, or if the run is
        over or gone. The run's version stays: its partials still add up to the same."""

    def partial_paths(self, prefix: str) -> set[str]:
        """Of all runs: what is at rest under this prefix and not told here belongs to nobody."""

    # -- attempts

    def begin_attempt(self, attempt: str, step: Step, runs: Iterable[str], fence: Fence) -> None:
        """Counted for each of the runs that is not over, before the work begins: so a process that dies has
        been counted. One that ends well is forgotten when its batch is committed, or its answers published.
        """

    def give_back_attempt(self, attempt: str) -> None:
        """It does not count: what ended it was not its own doing. Under no fence, since whoever was replaced
        gives back too."""

    def end_attempt_badly(self, attempt: str, reason: str) -> None:
        """It counts, and this is what is known."""

    def attempts(self, runs: Iterable[str], step: Step, node: str | None = None) -> dict[str, list[Attempt]]:
        """Those that count, oldest first, of the runs that have any; with a node, only its own: other
        pipelines may be at other shards of the same run right now."""

    # -- barriers

    def snapshots(self) -> list[Snapshot]:
        """Of all runs that are sealed or final, oldest first, all of one moment."""

    def snapshot(self, run: str) -> Snapshot:
        """Of one run, in any state."""

    def open_barrier(self, run: str, fence: Fence | None = None) -> bool:
        """Sealed becomes final, if in this transaction all tables are sealed, no chunk is pending, and every
        shard has processed exactly the chunks and rows expected; otherwise `BarrierNotReady` with figures.
        False if it is final or done already; `RunOver` if it failed or was ended, `IllegalTransition` if it
        is still open."""

    def fail_if_wrong(self, run: str, fence: Fence | None = None) -> str | None:
        """Fails a run that can no longer be right by what the registry has in this transaction (more chunks
        or rows processed than expected, other rows, a chunk that no batch will bring), and returns the
        reason. None, and no effect, if nothing is wrong or the run is past its barrier."""

    # -- answers

    def claim_final(self, run: str, claimant: Fence) -> bool:
        """For one claimant only, as long as its lease is current; True again for the same one. Written
        under the claimant's own fence. `RunOver` if the run is over, `IllegalTransition` if its barrier
        has not opened."""

    def unclaim(self, run: str, claimant: Fence) -> None:
        """Hands the run back for others to claim. Nothing happens if it is not the claimant's."""

    def publish_results(
        self,
        run: str,
        attempt: str,
        figures: dict[str, Any],
        fence: Fence | None = None,
        digests: dict[str, str] | None = None,
    ) -> None:
        """The run, which must be final, is done with this attempt's answers. The same attempt again
        changes nothing, another one is refused: `AlreadyPublished`. With a fence, only whoever has
        claimed the run may publish."""

    def results(self, run: str) -> Published | None: ...

    def publish_provisional(self, run: str, attempt: str, figures: dict[str, Any]) -> bool:
        """Takes the place of earlier ones. False, and no effect, if the run is over."""

    def provisional(self, run: str) -> Published | None:
        """The latest ones, also after the run is over."""

    # -- clean-up

    def finished_before(self, moment: float, with_chunks: bool = False) -> list[Run]:
        """Oldest first; `with_chunks`: only those whose chunks or partials are not forgotten yet."""

    def forget_chunks(self, run: str) -> None:
        """Chunks, log entries and partials go, figures and progress stay. Only for a run that is over."""

    def forget_run(self, run: str) -> bool:
        """Everything goes. False if it was gone already. Only for a run that is over."""

    # -- leases

    def acquire_lease(self, name: str, holder: str, ttl_seconds: float) -> int | None:
        """The epoch: the old one if the holder has the lease, a larger one if it was free or had
        expired. None while another holds it."""

    def outrank(self, name: str, rank: int, holder: str, ttl_seconds: float) -> int | None:
        """As `acquire_lease`, but a holder of a lower or the same rank is superseded. The holder to renew
        it as is `ranked_holder(rank, holder)`."""

    def enlist(self, name: str, holder: str, ttl_seconds: float) -> int:
        """Takes the lease whoever has it, with the next epoch: a node's new life supersedes its old one,
        which finds its epoch stale at its next write."""

    def renew(self, name: str, holder: str, epoch: int, ttl_seconds: float) -> bool:
        """False if it is another's: stop. One that has run out and that nobody took meanwhile is renewed,
        as it is still good as a fence: only a later epoch, or giving it back, ends one."""

    def holds(self, fence: Fence) -> bool:
        """Whether this epoch and this holder have the lease, and it has not run out."""

    def leases(self) -> dict[str, Lease]:
        """All leases by name, those included that ran out or were given back."""

    def release(self, name: str, holder: str, epoch: int) -> bool: ...

    # -- nodes

    def report_node(self, node: NodeRecord, fence: Fence | None = None) -> bool:
        """False, and nothing changed, if a later life of this node has been reported. A node that reports
        itself, under the fence of its own name, is the current life in any case."""

    def nodes(self) -> list[NodeRecord]:
        """By name."""

    def forget_node(self, name: str, fence: Fence | None = None) -> None: ...

    # -- identity

    def identity(self) -> Identity: ...

    def advance(self, beyond: int = 0) -> Identity:
        """The mark goes on, and beyond this one too."""

    def wait_longer(self, unknown: Iterable[str], most_seconds: float) -> dict[str, float]:
        """For how many seconds each name in storage has been unknown; `most_seconds` since the last look at
        most, whatever clocks say. Names that are not among them any more are forgotten."""

    # -- time and health

    def now(self) -> float:
        """The registry's time, in seconds since 1970. Whatever is compared between processes goes by it."""

    def check(self) -> None:
        """Writes and reads; raises `RegistryUnavailable` if either fails."""

    def close(self) -> None: ...

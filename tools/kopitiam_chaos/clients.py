"""Clients that submit runs during the strikes, and verify every answer."""

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kopitiam.client.client import Client
from kopitiam.client.downloads import open_download
from kopitiam.client.http import Transport
from kopitiam.contracts.errors import KopitiamError, Unavailable
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.registry import Registry
from kopitiam.results.summary import RunSummary
from kopitiam.synthetic import generate
from kopitiam.verification import verify
from kopitiam_chaos.report import RowAccount, RunOutcome, TableAccount, processed_rows

_PAUSE_SECONDS = 0.5
_ABORT_SECONDS = 60.0  # a client that verifies answers cannot be interrupted


@dataclass(frozen=True)
class DataFolder:
    path: Path
    rows: Mapping[str, int]  # by table

    @classmethod
    def generated(cls, path: Path, scale: float, seed: int) -> "DataFolder":
        return cls(path, generate(path, scale, seed).rows)


@dataclass
class SubmittingClient:
    """Submits its folder repeatedly, and verifies each run, until it is stopped or a run fails."""

    number: int
    folder: DataFolder
    transport: Transport
    registry: Registry
    patience_seconds: float
    on_outcome: Callable[[RunOutcome], None] = lambda _: None
    outcomes: list[RunOutcome] = field(default_factory=list)
    has_ended: bool = False

    def work(self, finishing: threading.Event) -> None:
        try:
            while True:
                outcome = self.submit()
                self.outcomes.append(outcome)
                self.on_outcome(outcome)
                if finishing.is_set() or outcome.error:
                    return
        finally:
            self.has_ended = True

    def submit(self) -> RunOutcome:
        begun = time.monotonic()
        run = None
        client = Client.over(self.transport)
        try:
            handle = client.open_run(f"chaos, client {self.number}")
            run = handle.id
            with tempfile.TemporaryDirectory(prefix="kopitiam-chaos-") as scratch:
                client.submit(self.folder.path, resume=run)
                handle.wait()
                out = Path(scratch) / "answers"
                handle.download(out)
                report = verify(self.folder.path, out)
                _, summary = open_download(out)
                rows = self._account(run, summary)
        except Exception as error:
            reason = str(error) if isinstance(error, KopitiamError) else f"{type(error).__name__}: {error}"
            return RunOutcome(self.number, run, time.monotonic() - begun, error=reason)
        return RunOutcome(self.number, run, time.monotonic() - begun, rows, report.differences)

    def _account(self, run: str, summary: RunSummary) -> RowAccount:
        """From the summary of the answers, and from the counters in the registry."""
        counted = summary.tables
        expected, processed = self._registered(run)
        return RowAccount(
            {
                table: TableAccount(
                    there=self.folder.rows[table],
                    used=counted[table].used,
                    rejected=counted[table].rejected,
                    expected=expected[table],
                    processed=processed.get(table, 0),
                )
                for table in QuestionSet.of_catalog().tables
            }
        )

    def _registered(self, run: str) -> tuple[dict[str, int], dict[str, int]]:
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                tables = self.registry.table_states(run)
                expected = {name: table.expected_rows or 0 for name, table in tables.items()}
                return expected, processed_rows(self.registry.progress(run))
            except Unavailable:  # it may be struck just now
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)


class ClientPool:
    """Several clients, each on its own thread."""

    def __init__(self, clients: Sequence[SubmittingClient]) -> None:
        self.clients = clients
        self._finishing = threading.Event()
        self._threads = [
            threading.Thread(
                target=client.work, args=(self._finishing,), name=f"client-{client.number}", daemon=True
            )
            for client in clients
        ]

    @property
    def outcomes(self) -> list[RunOutcome]:
        return [outcome for client in self.clients for outcome in client.outcomes]

    @property
    def ended(self) -> int:
        return sum(client.has_ended for client in self.clients)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self, seconds: float) -> None:
        """Let each client finish its current run, and wait at most `seconds` in all."""
        self._finishing.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def abort(self) -> None:
        """Abort: pending requests to gateways are abandoned."""
        for client in self.clients:
            client.transport.abandon()
        self.finish(_ABORT_SECONDS)
        for client in self.clients:
            client.transport.close()

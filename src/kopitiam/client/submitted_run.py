"""A run from its upload to its answers, at a gateway or in this process: upload, wait, download."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kopitiam.client.downloads import FORMS, download
from kopitiam.client.folder import InputFolder
from kopitiam.client.port import RunCalls
from kopitiam.client.upload import Progress, UploadOptions, upload
from kopitiam.contracts.api import RunStatus
from kopitiam.contracts.errors import RunFailed, RunOver
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.tables import Table
from kopitiam.questions.question_set import QuestionSet, tables_of

_FIRST_POLL, _SLOWEST_POLL = 0.1, 0.3


@dataclass(frozen=True)
class SubmittedRun:
    id: str
    _calls: RunCalls = field(repr=False, compare=False)

    def status(self) -> RunStatus:
        return self._calls.status(self.id)

    def wait(
        self, timeout_seconds: float | None = None, progress: Callable[[RunStatus], None] | None = None
    ) -> RunStatus:
        """Poll until the run is done; `progress` gets every status. Return the last one.

        Raises RunFailed if the run fails, RunOver if it was ended, or TimeoutError.
        """
        started = self._calls.clock()
        pause = _FIRST_POLL
        while True:
            status = self.status()
            if progress is not None:
                progress(status)
            if status.state == RunState.DONE:
                return status
            raise_if_failed(status)
            if timeout_seconds is not None and self._calls.clock() - started + pause > timeout_seconds:
                raise TimeoutError(f"run {self.id} is still {status.state} after {timeout_seconds:g} s")
            self._calls.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST_POLL)

    def questions(self) -> QuestionSet:
        """Return the questions of the run, with their parameters."""
        return QuestionSet.from_dict(self.status().questions)

    def tables(self) -> dict[str, Table]:
        """Return the tables that the run needs, each with the columns that it needs."""
        return tables_of({name: table.columns for name, table in self.status().tables.items()})

    def upload(self, folder: InputFolder, *, strict: bool = False, progress: Progress | None = None) -> None:
        """Send a folder that `check_structure` has accepted, without the chunks that are there already."""
        upload(self._calls, folder, self.id, UploadOptions(strict, progress or (lambda _: None)))

    def download(self, out: str | Path, forms: tuple[str, ...] = FORMS, since: str | None = None) -> None:
        """Write every answer as CSV, JSON and Parquet, the report, the summary, and any rejected rows.

        The report also shows what changed since the answers of the run `since`.
        """
        download(self._calls, self.id, Path(out), forms, since)

    def cancel(self) -> RunStatus:
        """End the run and remove its data."""
        return self._calls.cancel(self.id)


def raise_if_failed(status: RunStatus) -> None:
    """Raise RunFailed if the run failed, RunOver if it was ended."""
    if status.state == RunState.FAILED:
        raise RunFailed(f"run {status.run} failed: {status.error or 'no reason given'}")
    if status.state == RunState.ENDED:
        raise RunOver(f"run {status.run} was ended{f': {status.error}' if status.error else ''}")

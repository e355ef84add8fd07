"""One run of a gateway, as callers of the public client handle it: status, answers, uploads, deletion."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.client.calls import Calls
from kopitiam.client.data_sets import DataFolder, send_files
from kopitiam.client.downloads import FORMS, download_provisional
from kopitiam.client.submitted_run import SubmittedRun
from kopitiam.client.upload import Progress, UploadOptions
from kopitiam.contracts.api import RunStatus
from kopitiam.contracts.errors import InputError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunHandle(SubmittedRun):
    """One run of a gateway.

    >>> run = client.run("0f8c…")
    >>> run.wait()
    >>> run.answer("3").to_pandas()
    """

    _calls: Calls = field(repr=False, compare=False)

    def answer(self, name: str) -> pa.Table:
        """Return the answer to one question of the run, with all columns.

        Raises InputError if the run does not ask it, RunError if the run is not done.
        """
        if name not in (known := self.questions().by_name):
            raise InputError(f"no answer {name!r}; there are {', '.join(known)}")
        data = self._calls.result(self.id, f"{name}.parquet")
        return pq.read_table(pa.BufferReader(data))

    def answers(self) -> dict[str, pa.Table]:
        """Return all answers by the name of their question."""
        return {name: self.answer(name) for name in self.questions().by_name}

    def download_provisional(self, out: str | Path, forms: tuple[str, ...] = FORMS) -> None:
        """Write the answers over the rows processed so far, all files of one moment.

        The summary says how many rows they cover.
        """
        download_provisional(self._calls, self.id, Path(out), forms)

    def send_files(
        self,
        folder: DataFolder,
        *,
        strict: bool = False,
        progress: Progress | None = None,
        on_note: Callable[[str], object] = _log.warning,
    ) -> None:
        """Send the files that differ to the data set of the run, and make its next version."""
        send_files(self._calls, self.id, folder, UploadOptions(strict, progress or (lambda _: None)), on_note)

    def delete(self) -> RunStatus:
        """Delete the run with its answers, after ending it if it is not over. Nothing of it remains, except
        files that it has sent to a data set. Returns its last status."""
        return self._calls.delete(self.id)

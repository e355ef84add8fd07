"""The public client: open a run, upload a folder, wait, read or download the answers."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.client.calls import Calls
from kopitiam.client.downloads import FORMS, download, download_provisional
from kopitiam.client.folder import InputFolder, check_structure, open_folder
from kopitiam.client.http import CONNECTIONS, PATIENCE_SECONDS, Transport
from kopitiam.client.upload import Progress, UploadOptions, upload
from kopitiam.contracts.api import AskedQuestions, OpenRun, RunStatus
from kopitiam.contracts.errors import ConfigError, InputError, RunFailed, RunOver
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.tables import Table
from kopitiam.questions.catalog import read_json, read_toml
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet, tables_of

OwnQuestions = str | Path | Sequence[Question] | Sequence[Mapping[str, Any]]
_FIRST_POLL, _SLOWEST_POLL = 0.1, 0.3
_PAGE = 50


@dataclass(frozen=True)
class RunHandle:
    """One run of a gateway.

    >>> run = client.run("0f8c…")
    >>> run.wait()
    >>> run.answer("3").to_pandas()
    """

    id: str
    _calls: Calls = field(repr=False, compare=False)

    def status(self) -> RunStatus:
        return self._calls.status(self.id)

    def wait(
        self, timeout_seconds: float | None = None, progress: Callable[[RunStatus], None] | None = None
    ) -> RunStatus:
        """Poll until the run is done; `progress` gets every status. Return the last one.

        Raises RunFailed if the run fails, RunOver if it was ended, or TimeoutError.
        """
        transport = self._calls.transport
        started = transport.clock()
        pause = _FIRST_POLL
        while True:
            status = self.status()
            if progress is not None:
                progress(status)
            if status.state == RunState.DONE:
                return status
            raise_if_failed(status)
            if timeout_seconds is not None and transport.clock() - started + pause > timeout_seconds:
                raise TimeoutError(f"run {self.id} is still {status.state} after {timeout_seconds:g} s")
            transport.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST_POLL)

    def asked(self) -> QuestionSet:
        """Return the questions of the run, with their parameters."""
        return QuestionSet.from_dict(self.status().questions)

    def tables(self) -> dict[str, Table]:
        """Return the tables that the run needs, each with the columns that it needs."""
        return tables_of({name: table.columns for name, table in self.status().tables.items()})

    def answer(self, name: str) -> pa.Table:
        """Return the answer to one question of the run, with all columns.

        Raises InputError if the run does not ask it, RunError if the run is not done.
        """
        if name not in (known := self.asked().by_name):
            raise InputError(f"no answer {name!r}; there are {', '.join(known)}")
        data = self._calls.result(self.id, f"{name}.parquet")
        return pq.read_table(pa.BufferReader(data))

    def answers(self) -> dict[str, pa.Table]:
        """Return all answers by the name of their question."""
        return {name: self.answer(name) for name in self.asked().by_name}

    def download(self, out: str | Path, forms: tuple[str, ...] = FORMS) -> None:
        """Write every answer as CSV, JSON and Parquet, the report, the summary, and any rejected rows."""
        download(self._calls, self.id, Path(out), forms)

    def download_provisional(self, out: str | Path, forms: tuple[str, ...] = FORMS) -> None:
        """Write the answers over the rows processed so far, all files of one moment.

        The summary says how many rows they cover.
        """
        download_provisional(self._calls, self.id, Path(out), forms)

    def upload(self, folder: InputFolder, *, strict: bool = False, progress: Progress | None = None) -> None:
        """Send a folder that `check_structure` has accepted, without the chunks that the gateway has."""
        upload(self._calls, folder, self.id, UploadOptions(strict, progress or (lambda _: None)))

    def cancel(self) -> RunStatus:
        """End the run and remove its data."""
        return self._calls.cancel(self.id)


class Client:
    """A client of a Kopitiam gateway; several threads may share one.

    >>> with Client("http://127.0.0.1:8440", token="…") as client:
    ...     run = client.submit("exports", label="January", years=2024, top=5)
    ...     run.wait()
    ...     tpv = run.answer("3")          # a pyarrow.Table
    ...     run.download("answers")        # CSV, JSON, Parquet

    A call to a gateway that does not answer is retried for `patience_seconds`; then Unavailable is raised.
    `verify` may be the path of a file with the certificates to trust.
    """

    def __init__(
        self,
        server: str = "http://127.0.0.1:8440",
        token: str | None = None,
        *,
        connections: int = CONNECTIONS,
        patience_seconds: float = PATIENCE_SECONDS,
        verify: bool | str | Path = True,
    ) -> None:
        self._calls = Calls(
            Transport(
                server, token, connections=connections, patience_seconds=patience_seconds, verify=verify
            )
        )

    @classmethod
    def over(cls, transport: Transport) -> Self:
        """Return a client that uses an existing transport, and closes it."""
        client = cls.__new__(cls)
        client._calls = Calls(transport)
        return client

    def open_run(
        self,
        label: str = "",
        *,
        years: int | tuple[int, int] | None = None,
        hours: tuple[str, str] | None = None,
        min_amount: str | int | Decimal | None = None,
        top: int | None = None,
        questions: OwnQuestions = (),
        ask: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> RunHandle:
        """Open a run. Parameters that are not given have the gateway's defaults.

        Without `questions` and `ask`, the run asks the catalog. The same idempotency key gives the same run.
        """
        own = own_questions(questions)
        QuestionSet.select(Parameters(), own, ask)  # raises before anything is sent
        selection = AskedQuestions(
            years=(years, years) if isinstance(years, int) else years,
            hours=hours,
            min_amount=None if min_amount is None else str(min_amount),
            top=top,
            ask=None if ask is None else list(ask),
            definitions=[json.loads(question.definition) for question in own],
        )
        parameters = selection.model_dump(exclude_none=True, exclude={"ask", "definitions"})
        Parameters.from_dict(Parameters().to_dict() | parameters)  # raises before anything is sent
        # Without a key, the retry of an opening whose response was lost would open a second run.
        request = OpenRun(
            label=label, questions=selection, idempotency_key=idempotency_key or uuid.uuid4().hex
        )
        return self.run(self._calls.open_run(request).run)

    def submit(
        self,
        folder: str | Path,
        label: str = "",
        *,
        resume: str | None = None,
        strict: bool = False,
        progress: Progress | None = None,
        years: int | tuple[int, int] | None = None,
        hours: tuple[str, str] | None = None,
        min_amount: str | int | Decimal | None = None,
        top: int | None = None,
        questions: OwnQuestions = (),
        ask: Sequence[str] | None = None,
    ) -> RunHandle:
        """Check and send a folder of CSV exports to a new run, or to an open one with `resume`.

        Only chunks that the gateway lacks are sent. With `strict`, the first bad row raises BadRows.

        >>> run = client.submit("exports", progress=print)
        >>> run = client.submit("exports", questions="mine.toml", ask=["sales_by_hour", "3"])
        """
        parameters = {"years": years, "hours": hours, "min_amount": min_amount, "top": top}
        own = own_questions(questions)
        asks = own or any(value is not None for value in (*parameters.values(), ask))
        if resume is not None and (label or asks):
            raise ConfigError("a resumed run already has its label and its questions")
        if resume is None:
            tables = QuestionSet.select(Parameters(), own, ask).tables
        else:
            tables = self.run(resume).tables()
        exports = open_folder(Path(folder), tables)
        check_structure(exports)
        if resume is None:
            run = self.open_run(label, **parameters, questions=own, ask=ask)  # type: ignore[arg-type]
        else:
            run = self.run(resume)
        run.upload(exports, strict=strict, progress=progress)
        return run

    def run(self, run: str) -> RunHandle:
        """Return a handle to a run, without a call to the gateway."""
        return RunHandle(run, self._calls)

    def runs(self) -> Iterator[RunStatus]:
        """Yield your runs, newest first; pages are fetched on demand."""
        page = self._calls.page(_PAGE, None)
        yield from page.runs
        while page.next is not None:
            page = self._calls.page(_PAGE, page.next)
            yield from page.runs

    def cancel(self, run: str) -> RunStatus:
        return self.run(run).cancel()

    def close(self) -> None:
        self._calls.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def own_questions(questions: OwnQuestions) -> list[Question]:
    """Read questions from the path of a TOML file, or from definitions and questions.

    Raises InputError if the file cannot be read, QuestionError for a bad definition.
    """
    if isinstance(questions, str | Path):
        path = Path(questions)
        try:
            return read_toml(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
    definitions = [json.loads(q.definition) if isinstance(q, Question) else q for q in questions]
    return read_json(definitions)


def raise_if_failed(status: RunStatus) -> None:
    """Raise RunFailed if the run failed, RunOver if it was ended."""
    if status.state == RunState.FAILED:
        raise RunFailed(f"run {status.run} failed: {status.error or 'no reason given'}")
    if status.state == RunState.ENDED:
        raise RunOver(f"run {status.run} was ended{f': {status.error}' if status.error else ''}")

"""A gateway as a Python object: open a run, send a folder, wait, take the answers."""

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
from kopitiam.client.upload import Sending, upload
from kopitiam.client.upload_progress import Progress
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
        """Returns when the answers are there. Raises RunFailed, RunOver if it was ended, or TimeoutError."""
        transport = self._calls.transport
        begun = transport.clock()
        pause = _FIRST_POLL
        while True:
            status = self.status()
            if progress is not None:
                progress(status)
            if status.state == RunState.DONE:
                return status
            require_hope(status)
            if timeout_seconds is not None and transport.clock() - begun + pause > timeout_seconds:
                raise TimeoutError(f"run {self.id} is still {status.state} after {timeout_seconds:g} s")
            transport.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST_POLL)

    def asked(self) -> QuestionSet:
        """What the run asks."""
        return QuestionSet.from_dict(self.status().questions)

    def tables(self) -> dict[str, Table]:
        """The tables that the run wants, with the columns of each."""
        return tables_of({name: table.columns for name, table in self.status().tables.items()})

    def answer(self, name: str) -> pa.Table:
        """The answer to one question of the run, with all columns."""
        if name not in (known := self.asked().by_name):
            raise InputError(f"no answer {name!r}; there are {', '.join(known)}")
        data = self._calls.result(self.id, f"{name}.parquet")
        return pq.read_table(pa.BufferReader(data))

    def answers(self) -> dict[str, pa.Table]:
        return {name: self.answer(name) for name in self.asked().by_name}

    def download(self, out: str | Path, forms: tuple[str, ...] = FORMS) -> None:
        """Every answer as CSV, JSON and Parquet, the summary, and the rejected rows if there are any."""
        download(self._calls, self.id, Path(out), forms)

    def download_provisional(self, out: str | Path, forms: tuple[str, ...] = FORMS) -> None:
        """The answers to what has come so far, all of one moment; the summary says how many rows that is."""
        download_provisional(self._calls, self.id, Path(out), forms)

    def cancel(self) -> RunStatus:
        """Ends the run by force; what was sent is removed."""
        return self._calls.cancel(self.id)


class Client:
    """Talks to a Kopitiam gateway; safe to use from several threads.

    >>> with Client("http://127.0.0.1:8440", token="…") as client:
    ...     run = client.submit("exports", label="January", years=2024, top=5)
    ...     run.wait()
    ...     tpv = run.answer("3")          # a pyarrow.Table
    ...     run.download("answers")        # CSV, JSON, Parquet

    A gateway that does not answer is tried again for `patience_seconds`, call by call, then Unavailable is
    raised. `verify` may be the path of a file with the certificates to trust.
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
        """A client over a transport that was made elsewhere."""
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
        """Opens a run. Parameters that are not given keep the gateway's default; without `questions` and
        `ask` the catalog is asked. The same key again gives the same run."""
        own = own_questions(questions)
        QuestionSet.select(Parameters(), own, ask)  # refuses what makes no sense before it is sent
        asked = AskedQuestions(
            years=(years, years) if isinstance(years, int) else years,
            hours=hours,
            min_amount=None if min_amount is None else str(min_amount),
            top=top,
            ask=None if ask is None else list(ask),
            definitions=[json.loads(question.definition) for question in own],
        )
        given = asked.model_dump(exclude_none=True, exclude={"ask", "definitions"})
        Parameters.from_dict(Parameters().to_dict() | given)
        # Without a key of its own, an opening whose answer is lost would open a second run.
        request = OpenRun(label=label, questions=asked, idempotency_key=idempotency_key or uuid.uuid4().hex)
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
        """Sends a folder of CSV exports, all of it or, with `resume`, what a run does not have yet.

        >>> run = client.submit("exports", progress=print)
        >>> run = client.submit("exports", questions="mine.toml", ask=["sales_by_hour", "3"])
        """
        parameters = {"years": years, "hours": hours, "min_amount": min_amount, "top": top}
        own = own_questions(questions)
        asks = own or any(each is not None for each in (*parameters.values(), ask))
        if resume is not None and (label or asks):
            raise ConfigError("a run that is resumed has its label and its questions already")
        if resume is None:
            tables = QuestionSet.select(Parameters(), own, ask).tables
        else:
            tables = self.run(resume).tables()
        found = open_folder(Path(folder), tables)
        check_structure(found)
        if resume is None:
            run = self.open_run(label, **parameters, questions=own, ask=ask)  # type: ignore[arg-type]
        else:
            run = self.run(resume)
        self.upload(found, run, strict=strict, progress=progress)
        return run

    def upload(
        self, folder: InputFolder, run: RunHandle, *, strict: bool = False, progress: Progress | None = None
    ) -> None:
        """Sends a folder whose structure has been checked."""
        upload(self._calls, folder, run.id, Sending(strict, progress or (lambda _: None)))

    def run(self, run: str) -> RunHandle:
        return RunHandle(run, self._calls)

    def runs(self) -> Iterator[RunStatus]:
        """Newest first; pages are asked for as they are needed."""
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
    """Own questions from the path of a TOML file, from definitions as JSON has them, or as they are."""
    if isinstance(questions, str | Path):
        path = Path(questions)
        try:
            return read_toml(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
    definitions = [json.loads(q.definition) if isinstance(q, Question) else q for q in questions]
    return read_json(definitions)


def require_hope(status: RunStatus) -> None:
    """Raises if the run is over and there will be no answers."""
    if status.state == RunState.FAILED:
        raise RunFailed(f"run {status.run} failed: {status.error or 'no reason given'}")
    if status.state == RunState.ENDED:
        raise RunOver(f"run {status.run} was ended{f': {status.error}' if status.error else ''}")

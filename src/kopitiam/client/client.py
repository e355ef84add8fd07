"""The public client: open a run, upload a folder, wait, read or download the answers."""

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

from kopitiam.client.calls import Calls
from kopitiam.client.data_sets import DataExports, DataFolder, find_version
from kopitiam.client.folder import check_structure, open_folder
from kopitiam.client.http import CONNECTIONS, PATIENCE_SECONDS, Transport
from kopitiam.client.run_handle import RunHandle
from kopitiam.client.sql_results import SqlResult, run_sql
from kopitiam.client.upload import Progress
from kopitiam.contracts.api import AskedQuestions, OpenRun, RunStatus
from kopitiam.contracts.data_api import DataOfRun, DataSetDetail, DataSetView, DroppedDataSet
from kopitiam.contracts.errors import ConfigError, InputError
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Table
from kopitiam.questions.catalog import read_json, read_toml
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet

OwnQuestions = str | Path | Sequence[Question] | Sequence[Mapping[str, Any]]
_PAGE = 50
_log = logging.getLogger(__name__)


class QuestionArguments(TypedDict, total=False):
    """What a run asks: parameters that are not given have the gateway's defaults."""

    years: int | tuple[int, int] | None
    hours: tuple[str, str] | None
    min_amount: str | int | Decimal | None
    top: int | None
    questions: OwnQuestions
    ask: Sequence[str] | None


class Client:
    """A client of a Kopitiam gateway, or of several of one fleet; several threads may share one.

    >>> with Client("http://127.0.0.1:8440", token="…") as client:
    ...     run = client.submit("exports", label="January", years=2024, top=5)
    ...     run.wait()
    ...     tpv = run.answer("3")          # a pyarrow.Table
    ...     run.download("answers")        # CSV, JSON, Parquet

    A call to a gateway that does not answer is retried for `patience_seconds`; then Unavailable is raised.
    `server` may be a list of addresses, or a text with commas: a gateway that does not answer is left for the
    next one within seconds, and an upload or a wait continues there.
    `verify` may be the path of a file with the certificates to trust.
    """

    def __init__(
        self,
        server: str | Sequence[str] = "http://127.0.0.1:8440",
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
        data: DataOfRun | None = None,
    ) -> RunHandle:
        """Open a run. Parameters that are not given have the gateway's defaults.

        Without `questions` and `ask`, the run asks the catalog. The same idempotency key gives the same run.
        With `data` it sends files to a data set, or asks one.
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
        key = idempotency_key or uuid.uuid4().hex
        request = OpenRun(label=label, questions=selection, idempotency_key=key, data=data)
        return self.run(self._calls.open_run(request).run)

    def submit(
        self,
        folder: str | Path,
        label: str = "",
        *,
        resume: str | None = None,
        data: str | None = None,
        columns: Literal["needed", "all"] = "needed",
        strict: bool = False,
        progress: Progress | None = None,
        on_note: Callable[[str], object] = _log.warning,
        **questions: Unpack[QuestionArguments],
    ) -> RunHandle:
        """Check and send CSV exports, a folder or zip archive, to a new run, or to an open one with `resume`.

        Only chunks that the gateway lacks are sent. With `strict`, the first bad row raises BadRows. Before
        anything is sent, `on_note` gets a sentence about whatever is inferred from names and headers.
        Questions and parameters are those of `open_run`: years, hours, min_amount, top, questions, ask.
        With `data`, the files that differ from the newest version of that data set are sent, and the run
        answers over the version that they make; `columns="all"` keeps columns that no question needs yet.

        >>> run = client.submit("exports", progress=print)
        >>> run = client.submit("exports", questions="mine.toml", ask=["sales_by_hour", "3"])
        >>> run = client.submit("exports", data="sales")
        """
        if resume is not None and (label or data or any(questions.values())):
            raise ConfigError("a resumed run already has its label, its data set and its questions")
        keeps_all = columns == "all"
        if data is not None:
            exports = self.data_exports(folder, data, _tables(questions), keeps_all=keeps_all)
            changes = exports.compare(on_note=on_note)
            run = self.open_upload(changes, label, **questions)
        elif resume is not None and self.run(resume).status().data is not None:
            changes = self.resumed_exports(folder, resume, keeps_all=keeps_all).compare(on_note=on_note)
            run = self.run(resume)
        else:
            return self._submit_tables(folder, label, resume, strict, progress, on_note, questions)
        run.send_files(changes, strict=strict, progress=progress, on_note=on_note)
        return run

    def _submit_tables(  # noqa: PLR0917
        self,
        folder: str | Path,
        label: str,
        resume: str | None,
        strict: bool,
        progress: Progress | None,
        on_note: Callable[[str], object],
        questions: QuestionArguments,
    ) -> RunHandle:
        tables = _tables(questions) if resume is None else self.run(resume).tables()
        exports = open_folder(Path(folder), tables)
        for note in check_structure(exports):
            on_note(note)
        run = self.open_run(label, **questions) if resume is None else self.run(resume)
        run.upload(exports, strict=strict, progress=progress)
        return run

    def data_exports(
        self, folder: str | Path, data: str, tables: Mapping[str, Table], *, keeps_all: bool = False
    ) -> DataExports:
        """Find the files of exports that are sent to a data set; `tables` are needed by the questions."""
        held = find_version(self._calls, data)
        return DataExports.open(Path(folder), data, tables, held, keeps_all)

    def resumed_exports(self, folder: str | Path, run: str, *, keeps_all: bool = False) -> DataExports:
        """Find the files of exports that an open run sends to its data set."""
        handle = self.run(run)
        use = handle.status().data
        if use is None or not use.upload:
            raise ConfigError(f"run {run} sends nothing to a data set")
        held = find_version(self._calls, use.name, use.seen)
        return DataExports.open(Path(folder), use.name, handle.tables(), held, keeps_all)

    def open_upload(
        self,
        changes: DataFolder,
        label: str = "",
        *,
        idempotency_key: str | None = None,
        **questions: Unpack[QuestionArguments],
    ) -> RunHandle:
        """Open a run for these changes of a data set. Without any, it asks the version that is there."""
        data = DataOfRun(name=changes.name, version=changes.seen or None, upload=bool(changes.new))
        return self.open_run(label, data=data, idempotency_key=idempotency_key, **questions)

    def ask(
        self,
        data: str,
        version: int | None = None,
        label: str = "",
        **questions: Unpack[QuestionArguments],
    ) -> RunHandle:
        """Open a run over a version of a data set, the newest by default, without sending anything.

        Questions and parameters are those of `open_run`.

        >>> run = client.ask("sales", years=2024, top=10)
        >>> run.wait()
        """
        return self.open_run(label, data=DataOfRun(name=data, version=version), **questions)

    def sql(
        self,
        data: str,
        sql: str,
        version: int | None = None,
        *,
        seconds: int | None = None,
        rows: int | None = None,
    ) -> SqlResult:
        """Run one SELECT over the tables of a version of a data set, the newest by default, and wait for it.

        `seconds` and `rows` are limits below those of the gateway. Raises QuestionError with the reason.

        >>> client.sql("sales", "select city, count(*) as stores from stores group by city").table()
        """
        return run_sql(self._calls, data, sql, version=version, seconds=seconds, rows=rows)

    def data_sets(self) -> list[DataSetView]:
        """Return your data sets, by name."""
        return self._calls.data_sets().data_sets

    def data_set(self, name: str, version: int | None = None) -> DataSetDetail:
        """Return a data set: its versions, and the files of one of them, by default the newest."""
        return self._calls.data_set(name, version)

    def drop(self, name: str) -> DroppedDataSet:
        """Delete a data set with all its versions and files, its runs and their answers."""
        return self._calls.drop_data_set(name)

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


def _tables(questions: QuestionArguments) -> dict[str, Table]:
    """Return the tables that these questions of `open_run` need."""
    own = own_questions(questions.get("questions", ()))
    return QuestionSet.select(Parameters(), own, questions.get("ask")).tables


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

"""The progress of a run: its status as text, and progress bars on the error stream.

Progress bars are shown only if the error stream is a terminal.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column
from rich.text import Text

from kopitiam.cli.columns import BarRow, bar_lines, name_text, printable
from kopitiam.cli.options import changes_text
from kopitiam.client.upload import TableProgress
from kopitiam.contracts.api import RunStatus, StageStatus, TableStatus
from kopitiam.contracts.data_api import DataStatus
from kopitiam.questions.layout import LAYOUT


def status_lines(status: RunStatus, console: Console) -> Iterator[Text]:
    name = f"run {status.run}{f' ({name_text(status.label)})' if status.label else ''}"
    yield Text(f"{name}: {status.state}, since {local_time(status.created_at)}")
    if status.error:
        yield Text(printable(status.error), "red")
    if status.data is not None:
        yield Text(_data_text(status.data))
    yield Text("tables", "bold")
    tables = [_table(name, table) for name, table in status.tables.items()]
    yield from bar_lines(console, tables, most=1.0)
    if status.stages:
        yield Text("stages", "bold")
        yield from bar_lines(console, list(_stages(status)), most=1.0)


def _data_text(use: DataStatus) -> str:
    if use.version is None or use.changes is None:
        return f"data set {use.name}: files are sent, on top of version {use.seen}"
    return f"data set {use.name}, version {use.version}: {changes_text(use.changes)}"


def progress_line(status: RunStatus) -> str:
    """Return one line with the chunks processed and the state."""
    done, expected = chunks_processed(status)
    return f"{done:,} of {expected:,} chunks processed · {status.state}"


def chunks_processed(status: RunStatus) -> tuple[int, int]:
    """Return the number of processed chunks and of all chunks.

    Before END, the chunks of a table are those received so far.
    """
    tables = status.tables.values()
    known = (table.chunks if table.expected_chunks is None else table.expected_chunks for table in tables)
    return sum(table.processed for table in tables), sum(known)


def local_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def _table(name: str, table: TableStatus) -> BarRow:
    chunks = f"{_of(table.chunks, table.expected_chunks)} chunks"
    rejected = f"{table.rejected:,} rejected"
    rows = f"{_of(table.rows, table.expected_rows)} rows"
    return BarRow(
        (name, "sealed" if table.sealed else "open", chunks, rejected),
        rows,
        _share(table.rows, table.expected_rows),
    )


def _stages(status: RunStatus) -> Iterator[BarRow]:
    """Yield each stage in total and, if there are several shards, each shard of it."""
    for stage, shards in status.stages.items():
        whole = _sum(list(shards.values()))
        yield _stage(stage, whole)
        if len(shards) > 1:
            yield from (_stage(f"  shard {shard}", work) for shard, work in shards.items())


def _stage(name: str, work: StageStatus) -> BarRow:
    rows = f"{work.rows_out:,} of {work.rows:,} rows went on"
    chunks = f"{_of(work.processed, work.expected)} chunks"
    return BarRow((name, rows), chunks, _share(work.processed, work.expected))


def _sum(shards: list[StageStatus]) -> StageStatus:
    expected = [shard.expected for shard in shards]
    return StageStatus(
        role=shards[0].role,
        expected=None if None in expected else sum(count or 0 for count in expected),
        processed=sum(shard.processed for shard in shards),
        rows=sum(shard.rows for shard in shards),
        rows_out=sum(shard.rows_out for shard in shards),
    )


def _of(done: int, expected: int | None) -> str:
    return f"{done:,}" if expected is None else f"{done:,} of {expected:,}"


def _share(done: int, expected: int | None) -> float:
    """Return the share that is done: 1 if nothing is expected."""
    if expected is None:
        return 0.0
    return done / expected if expected else 1.0


_WIDEST = max(map(len, LAYOUT))
_QUIET_SECONDS = 10.0


class _Amount(ProgressColumn):
    """Shows bytes and speed of a read or upload, and the step of the pipeline."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))
        self._bytes, self._speed = DownloadColumn(), TransferSpeedColumn()

    def render(self, task: Task) -> Text:
        if task.fields.get("step") is not None:
            return Text(task.fields["step"])
        parts = [self._bytes.render(task), self._speed.render(task)]
        if task.fields.get("rows") is not None:
            parts.append(Text(f"{task.fields['rows']:,} rows"))
        return Text(" ").join(parts)


class _Bars:
    """Progress bars that disappear when they are stopped."""

    def __init__(self, width: int, *columns: ProgressColumn) -> None:
        console = Console(stderr=True)
        self._quiet_until = 0.0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=width),
            _Amount(),
            *columns,
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def stop(self) -> None:
        self._progress.stop()

    def print_line(self, line: str) -> None:
        """Print a line above the bars, which stays."""
        self._progress.console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)

    def on_retry(self, reason: str) -> None:
        """Print that the gateway is unavailable, at most one line in ten seconds."""
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
            self.print_line(f"waiting for the gateway: {reason}")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class AnalysisProgress(_Bars):
    """Bars of `kopi analyze`: the check, the upload, and Spark."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(30, TimeElapsedColumn())
        self._tables: dict[str, int] = {}
        self._checking = self._progress.add_task("Checking", total=total_bytes)
        self._reading = self._progress.add_task("Reading ", total=total_bytes)
        self._spark = self._progress.add_task("Spark   ", total=None, step="starting", start=False)

    def on_checked(self, count: int) -> None:
        self._progress.advance(self._checking, count)

    def on_table(self, progress: TableProgress) -> None:
        self._tables[progress.table] = progress.bytes_read
        self._progress.update(self._reading, completed=sum(self._tables.values()))

    def on_status(self, status: RunStatus) -> None:
        self._progress.start_task(self._spark)
        _show_stages(self._progress, self._spark, status)


class SubmitProgress(_Bars):
    """Bars of `kopi submit`: the check, the upload of each table, and the pipeline."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(12)
        self._checking = self._progress.add_task("Checking".ljust(_WIDEST), total=total_bytes)
        self._tables: dict[str, TaskID] = {}
        self._pipeline: TaskID | None = None

    def on_checked(self, count: int) -> None:
        self._progress.advance(self._checking, count)

    def on_table(self, progress: TableProgress) -> None:
        if progress.table not in self._tables:
            name = progress.table.ljust(_WIDEST)
            self._tables[progress.table] = self._progress.add_task(name, total=progress.bytes_total, rows=0)
        self._progress.update(self._tables[progress.table], completed=progress.bytes_read, rows=progress.rows)

    def on_status(self, status: RunStatus) -> None:
        if self._pipeline is None:
            self._pipeline = self._progress.add_task("Pipeline".ljust(_WIDEST), step="", total=None)
        _show_stages(self._progress, self._pipeline, status)


def _show_stages(progress: Progress, task: TaskID, status: RunStatus) -> None:
    done, expected = chunks_processed(status)
    progress.update(task, total=expected, completed=done, step=progress_line(status))

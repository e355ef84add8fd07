"""Progress bars on the error stream; nothing when that is not a terminal."""

import time
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

from kopitiam.cli.status_view import chunks_processed, progress_line
from kopitiam.client.upload_progress import TableProgress
from kopitiam.contracts.api import RunStatus
from kopitiam.questions.layout import LAYOUT

_WIDEST = max(map(len, LAYOUT))
_QUIET_SECONDS = 10.0


class _Amount(ProgressColumn):
    """Bytes and speed for what is read, the step for Spark."""

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
    """Bars that are taken away when they are stopped."""

    def __init__(self, width: int, *columns: ProgressColumn) -> None:
        console = Console(stderr=True)
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

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class AnalysisProgress(_Bars):
    def __init__(self, total_bytes: int) -> None:
        super().__init__(30, TimeElapsedColumn())
        self._tables: dict[str, int] = {}
        self._checking = self._progress.add_task("Checking", total=total_bytes)
        self._reading = self._progress.add_task("Reading ", total=total_bytes)
        self._spark = self._progress.add_task("Spark   ", total=None, step="starting", start=False)

    def on_checked(self, count: int) -> None:
        self._progress.advance(self._checking, count)

    def on_table(self, seen: TableProgress) -> None:
        self._tables[seen.table] = seen.bytes_read
        self._progress.update(self._reading, completed=sum(self._tables.values()))

    def on_status(self, status: RunStatus) -> None:
        self._progress.start_task(self._spark)
        _show_stages(self._progress, self._spark, status)


class SubmitProgress(_Bars):
    """The check, a bar for each table that is sent, and what the pipeline makes of them."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(12)
        self._checking = self._progress.add_task("Checking".ljust(_WIDEST), total=total_bytes)
        self._tables: dict[str, TaskID] = {}
        self._pipeline: TaskID | None = None
        self._quiet_until = 0.0

    def on_checked(self, count: int) -> None:
        self._progress.advance(self._checking, count)

    def on_table(self, seen: TableProgress) -> None:
        if seen.table not in self._tables:
            name = seen.table.ljust(_WIDEST)
            self._tables[seen.table] = self._progress.add_task(name, total=seen.bytes_total, rows=0)
        self._progress.update(self._tables[seen.table], completed=seen.bytes_read, rows=seen.rows)

    def on_status(self, status: RunStatus) -> None:
        if self._pipeline is None:
            self._pipeline = self._progress.add_task("Pipeline".ljust(_WIDEST), step="", total=None)
        _show_stages(self._progress, self._pipeline, status)

    def on_trouble(self, trouble: str) -> None:
        """Several threads may wait for the same gateway: a line now and then is enough."""
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
            self.say(f"waiting for the gateway: {trouble}")

    def say(self, line: str) -> None:
        """A line that stays, above the bars."""
        self._progress.console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)


def _show_stages(progress: Progress, task: TaskID, status: RunStatus) -> None:
    done, expected = chunks_processed(status)
    progress.update(task, total=expected, completed=done, step=progress_line(status))

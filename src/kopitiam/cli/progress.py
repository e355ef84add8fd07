"""Progress bars on the error stream; nothing when that is not a terminal."""

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
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column
from rich.text import Text

_STEPS = 5  # Spark's start and the four questions


class _Amount(ProgressColumn):
    """Bytes and speed for what is read, the step for Spark."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))
        self._bytes, self._speed = DownloadColumn(), TransferSpeedColumn()

    def render(self, task: Task) -> Text:
        if task.fields.get("step") is not None:
            return Text(task.fields["step"])
        return Text(" ").join([self._bytes.render(task), self._speed.render(task)])


class AnalysisProgress:
    def __init__(self, total_bytes: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            _Amount(),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._checking = self._progress.add_task("Checking", total=total_bytes)
        self._reading = self._progress.add_task("Reading ", total=total_bytes)
        self._spark = self._progress.add_task("Spark   ", total=_STEPS, step="starting", start=False)
        self._steps = 0

    def on_checked(self, count: int) -> None:
        self._progress.advance(self._checking, count)

    def on_bytes(self, count: int) -> None:
        self._progress.advance(self._reading, count)

    def on_step(self, step: str) -> None:
        self._progress.start_task(self._spark)
        self._progress.update(self._spark, step=step, completed=self._steps)
        self._steps += 1

    def on_tasks(self, done: int, total: int) -> None:
        self._progress.update(self._spark, completed=self._steps - 1 + done / max(total, 1))

    def stop(self) -> None:
        self._progress.stop()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

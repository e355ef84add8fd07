"""`kopi analyze`: reader, registry, pipeline and barrier in one process, for one run in a temporary home.

Spark takes longest to start: everything else is imported after its JVM was launched.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError
from kopitiam.contracts.runs import RunState
from kopitiam.runtime.home import exclusive_home
from kopitiam.spark.s3a import spark_conf
from kopitiam.spark.session import SparkEngine, spark_engine
from kopitiam.spark.settings import SparkOptions
from kopitiam.system.logs import KeptLogs, rotating_logs

if TYPE_CHECKING:
    from kopitiam.client.submitted_run import SubmittedRun
    from kopitiam.questions.question_set import QuestionSet
    from kopitiam.registry.registry import Registry
    from kopitiam.spark.installation import Java

_BRIEF_BYTES = 1 << 30  # smaller inputs are answered before the JVM's optimizing compiler pays off
_ARCHIVE_SECONDS = 600  # the JVM writes the class archive when it stops, slowly on a loaded machine


@contextlib.contextmanager
def analysis(
    settings: Settings, question_set: "QuestionSet", input_bytes: int, *, is_verbose: bool = False
) -> "Iterator[tuple[SubmittedRun, SparkEngine]]":
    """A new run, which ends with the block, and the Spark engine that answers it."""
    options = SparkOptions(
        settings.spark.master,
        spark_conf(settings),
        is_brief=input_bytes < _BRIEF_BYTES,
        is_verbose=is_verbose,
    )
    with _private_run(settings, question_set, options) as (run, engine):
        yield run, engine


def warm_up(settings: Settings) -> "tuple[Java, Path | None, Path]":
    """Compiles the parser of CSV blocks, makes a lean Spark home, runs one small analysis, and records the
    classes that Java loaded for it.

    Returns the Java, its class archive or None if the JVM wrote none, and the file of the parser.
    """
    from kopitiam.client.folder import open_folder  # noqa: PLC0415
    from kopitiam.intake.clean_blocks import write_kernel  # noqa: PLC0415
    from kopitiam.questions.question_set import QuestionSet  # noqa: PLC0415
    from kopitiam.spark.installation import (  # noqa: PLC0415
        archive_path,
        find_java,
        make_lean_spark_home,
        record_option,
    )
    from kopitiam.synthetic import generate  # noqa: PLC0415

    parser = write_kernel()
    java = find_java()
    archive = archive_path(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    make_lean_spark_home()
    with tempfile.TemporaryDirectory(prefix="kopitiam-", dir=archive.parent) as folder:
        recorded, questions = Path(folder) / archive.name, QuestionSet.of_catalog()
        generate(Path(folder) / "data", scale=0.001, seed=1)
        options = SparkOptions(
            java_options=record_option(recorded), is_brief=True, stop_seconds=_ARCHIVE_SECONDS
        )
        with _private_run(settings, questions, options) as (run, _):
            run.upload(open_folder(Path(folder) / "data", questions.tables))
            run.wait()
        if recorded.is_file():
            recorded.replace(archive)
    return java, archive if archive.is_file() else None, parser


@contextlib.contextmanager
def _private_run(
    settings: Settings, question_set: "QuestionSet", options: SparkOptions
) -> "Iterator[tuple[SubmittedRun, SparkEngine]]":
    """If Spark dies, its log is kept in the home of the settings, and stderr says where."""
    with (
        tempfile.TemporaryDirectory(prefix="kopitiam-", ignore_cleanup_errors=True) as home,
        exclusive_home(Path(home)) as scratch,
        rotating_logs(Path(home), settings.log_bytes),
        spark_engine(options, scratch, KeptLogs(settings.home / "logs", "analyze")) as engine,
    ):
        try:
            with _open_run(settings.privately(Path(home)), question_set, engine, scratch) as run:
                yield run, engine
        finally:
            if engine.kept_log is not None:
                sys.stderr.write(f"kopi: Spark's log is kept in {engine.kept_log}\n")


@contextlib.contextmanager
def _open_run(
    settings: Settings, question_set: "QuestionSet", engine: SparkEngine, scratch: Path
) -> "Iterator[SubmittedRun]":
    """Opens a run in a new registry, and processes its chunks during the block."""
    from kopitiam.bus.memory import MemoryBus  # noqa: PLC0415
    from kopitiam.client.submitted_run import SubmittedRun  # noqa: PLC0415
    from kopitiam.registry.registry import create_temporary_registry  # noqa: PLC0415
    from kopitiam.runtime.local_calls import LocalCalls  # noqa: PLC0415
    from kopitiam.runtime.processing import RestartingPipeline, processing  # noqa: PLC0415
    from kopitiam.storage.open import temporary_storage  # noqa: PLC0415
    from kopitiam.system.health import Health  # noqa: PLC0415

    shards = settings.pipeline.shards
    with (
        temporary_storage(settings) as storage,
        contextlib.closing(create_temporary_registry(settings.home)) as registry,
        contextlib.closing(MemoryBus()) as bus,
    ):
        pipeline = RestartingPipeline(
            settings, registry, bus, storage, range(shards), engine, scratch, Health(), is_patient=False
        )
        failure = Future[None]()
        failure.add_done_callback(lambda reason: _fail_runs(registry, reason))
        with processing(pipeline, failure):
            opened = registry.open_run(
                question_set.to_dict(),
                label="",
                owner="",
                idempotency_key=None,
                lease_seconds=settings.gateway.lease_seconds,
                shards=shards,
            )
            yield SubmittedRun(opened.run.run, LocalCalls(registry, storage, bus, shards))


def _fail_runs(registry: "Registry", failure: Future[None]) -> None:
    """Fails the run when the pipeline or the barrier fails: no later process will continue it."""
    for run in registry.runs_in(RunState.OPEN, RunState.SEALED, RunState.FINAL):
        with contextlib.suppress(KopitiamError):
            registry.move(run.run, RunState.FAILED, str(failure.exception()))

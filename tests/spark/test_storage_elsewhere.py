"""A pipeline whose storage is a URL, not a path: Spark and pyarrow use the same files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from chunked_sales import cut, plain, sales
from pipelines import Pipeline, dying_at
from pyarrow import fs

from kopitiam.contracts.config import Settings, StorageSection
from kopitiam.contracts.errors import ConfigError, Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import RunState, new_run_id
from kopitiam.spark.session import connect_storage
from kopitiam.storage.arrow import ArrowStorage
from kopitiam.storage.open import open_storage
from kopitiam.storage.port import Key, StoragePort

# Folders of runs below that of a batch: in the end, and while Spark writes.
WHILE_SPARK_WRITES = ("", "_temporary/0/task_1_m_000000", "_temporary/0/_temporary/attempt_1_m_000000_0")
CHUNKS = cut(sales(seed=5), rows_a_chunk=20)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "else where"  # a blank must not matter


@pytest.fixture
def storage(place: Path, tmp_path: Path) -> StoragePort:
    address = StorageSection(url=f"file://{str(place).replace(' ', '%20')}")
    return open_storage(Settings(home=tmp_path / "home", storage=address))


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline], storage: StoragePort) -> Pipeline:
    return make_pipeline(storage=storage, shards=2, max_chunks=4)


def test_a_run_is_answered_exactly_and_leaves_only_its_answers(pipeline, storage, place, tmp_path) -> None:
    run = pipeline.upload(CHUNKS)
    stray = storage.name_of(KEYS.chunk(run, "transactions", 0, 0), "of-a-body-that-lost")
    storage.replace(stray, b"not even Parquet")

    pipeline.process()
    pipeline.compaction.compact(run)
    pipeline.finish(run)

    with storage.open(KEYS.attempt(run, published(pipeline, run)) / "results_query_1.csv") as answer:
        rows = bytes(answer.read()).decode().splitlines()[1:]
    assert [tuple(row.split(",")) for row in rows] == plain(CHUNKS)["1"]
    left = {path.relative_to(place).parts[0] for path in place.rglob("*") if path.is_file()}
    assert left == {"results"}
    assert len(storage.find(f"{KEYS.results(run)}/*")) == 1
    assert not any((tmp_path / "home" / name).exists() for name in ("landing", "partials", "results"))


def published(pipeline: Pipeline, run: str) -> str:
    results = pipeline.registry.results(run)
    assert results is not None, pipeline.registry.get_run(run)
    return results.attempt


@pytest.mark.long
def test_orphaned_partials_are_removed_but_not_those_of_other_registries(
    make_pipeline, pipeline, storage
) -> None:
    run = pipeline.upload(CHUNKS)
    with dying_at("batch.written"):
        pipeline.step()
    batches = KEYS.partials_of("pipeline-1")
    for depth, below in enumerate(WHILE_SPARK_WRITES):
        for whose, owner in (("ours", run), ("theirs", new_run_id())):
            key = batches / f"batch={whose}-{depth}" / below / f"run={owner}" / "kind=tpv" / "x"
            storage.replace(key, b"a part")

    again = make_pipeline(storage=storage, shards=2, max_chunks=4)
    again.stream.sweep()

    left = [batch.name for batch in storage.find(f"{KEYS.partials}/pipeline=*/batch=*")]
    assert left == [f"batch=theirs-{depth}" for depth in range(len(WHILE_SPARK_WRITES))]
    again.process()
    again.finish(run)
    assert again.state(run) is RunState.DONE


def test_a_missing_chunk_fails_only_its_run(pipeline, storage) -> None:
    run = pipeline.upload(CHUNKS)
    storage.remove(pipeline.storage.name_of(KEYS.chunk(run, "users", 0, 0), "users-0"))
    pipeline.process()
    assert pipeline.reason(run).startswith("users chunk 0 cannot be read: ")


@pytest.mark.long
def test_no_run_fails_while_the_storage_is_unavailable(pipeline, storage, monkeypatch) -> None:
    run = pipeline.upload(CHUNKS)

    def away(*_: object) -> None:
        raise Unavailable("storage: away")

    with monkeypatch.context() as patches:
        patches.setattr(storage, "open", lambda _: (_ for _ in ()).throw(OSError("reset by peer")))
        patches.setattr(storage, "check", away)
        with pytest.raises(Unavailable, match="away"):
            pipeline.step()
    assert pipeline.state(run) is RunState.SEALED
    pipeline.process()
    pipeline.finish(run)
    assert pipeline.state(run) is RunState.DONE


def test_a_missing_hadoop_file_system_is_reported_with_the_package_to_add(spark) -> None:
    elsewhere = ArrowStorage(fs.LocalFileSystem(), "bucket/x", "s3a://bucket/x")
    message = r"^storage\.url: Spark cannot use s3a://bucket/x: .*; hadoop-aws is missing"
    with pytest.raises(ConfigError, match=message):
        connect_storage(spark, elsewhere, {"fs.s3a.endpoint.region": "eu-1"})
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    assert hadoop.get("fs.s3a.endpoint.region") == "eu-1"
    assert spark.conf.get("spark.hadoop.fs.s3a.endpoint.region", None) is None


def test_spark_reads_what_the_storage_wrote(spark, storage) -> None:
    storage.replace(Key("landing/a b=1/x.txt"), b"hello")
    connect_storage(spark, storage, {})
    assert [row.value for row in spark.read.text(storage.url(Key("landing/a b=1/x.txt"))).collect()] == [
        "hello"
    ]


def test_a_storage_that_spark_cannot_write_to_is_reported_at_once(spark, tmp_path) -> None:
    (tmp_path / "file").touch()
    below = ArrowStorage(fs.LocalFileSystem(), f"{tmp_path}/file", f"file://{tmp_path}/file")
    with pytest.raises(ConfigError, match=rf"^storage\.url: Spark cannot use file://{tmp_path}/file: "):
        connect_storage(spark, below, {})


def test_the_probe_file_is_removed(spark, storage, place) -> None:
    connect_storage(spark, storage, {})
    assert not any(place.iterdir())

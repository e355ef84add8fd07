"""Reads batches and final steps from a service's log, and computes figures from them."""

import json
from pathlib import Path

import pytest

from tools.benchmarks import streaming
from tools.benchmarks.service import ClientRun, Service
from tools.benchmarks.streaming import ServiceLog, batch_costs, breakdown, read_log

# Two runs after long pauses: Spark's progress before each is that of an idle trigger, not of a batch.
LOG = """
26/11/15 23:43:09 WARN ResolveWriteToStream: spark.sql.adaptive.enabled is not supported in streaming DataFrames/Datasets and will be disabled.
{"event": "batch 1 committed", "level": "info", "batch": 1, "chunks": 1, "rows": 10, "seconds": {"read": 0.9954, "check": 0.0008, "compute": 0.0, "commit": 0.0371, "merge and report": 0.0198}, "spark_before": {"batch": 1, "milliseconds": {"latestOffset": 7, "triggerExecution": 7}}, "timestamp": "2026-11-15T23:44:04.101059Z", "node": "serve"}
{"event": "batch 2 committed", "level": "info", "batch": 2, "chunks": 4, "rows": 45808, "seconds": {"read": 0.0883, "check": 0.0033, "compute": 6.1957, "commit": 0.0178, "merge and report": 0.0203}, "spark_before": {"batch": 1, "milliseconds": {"addBatch": 1117, "commitOffsets": 131, "getBatch": 0, "latestOffset": 2, "queryPlanning": 16, "triggerExecution": 1556, "walCommit": 280}}, "timestamp": "2026-11-15T23:44:10.736330Z", "node": "serve"}
{"event": "run cd30d9d96fc444a79934271f answered", "level": "info", "run": "cd30d9d96fc444a79934271f", "seconds": {"large_sales": 1.3667, "tpv": 3.0616, "products": 3.4093, "customers": 5.3067, "forms": 0.0875, "clean up": 0.0377}, "timestamp": "2026-11-15T23:44:16.242253Z", "node": "serve"}
{"event": "batch 3 committed", "level": "info", "batch": 3, "chunks": 1, "rows": 10, "seconds": {"read": 0.0995, "check": 0.0008, "compute": 0.0, "commit": 0.0166, "merge and report": 0.0083}, "spark_before": {"batch": 3, "milliseconds": {"latestOffset": 1, "triggerExecution": 1}}, "timestamp": "2026-11-15T23:44:32.677388Z", "node": "serve"}
{"event": "batch 4 committed", "level": "info", "batch": 4, "chunks": 2, "rows": 2208, "seconds": {"read": 0.0629, "check": 0.001, "compute": 0.0, "commit": 0.017, "merge and report": 0.0025}, "spark_before": {"batch": 3, "milliseconds": {"addBatch": 179, "commitOffsets": 77, "getBatch": 0, "latestOffset": 5, "queryPlanning": 10, "triggerExecution": 341, "walCommit": 68}}, "timestamp": "2026-11-15T23:44:33.033341Z", "node": "serve"}
{"event": "batch 5 committed", "level": "info", "batch": 5, "chunks": 2, "rows": 43600, "seconds": {"read": 0.1142, "check": 0.0043, "compute": 3.6359, "commit": 0.0118, "merge and report": 0.0108}, "spark_before": {"batch": 4, "milliseconds": {"addBatch": 131, "commitOffsets": 36, "getBatch": 0, "latestOffset": 17, "queryPlanning": 15, "triggerExecution": 310, "walCommit": 107}}, "timestamp": "2026-11-15T23:44:36.966941Z", "node": "serve"}
{"event": "run d46488a88bbcb7e04c9d7df5 answered", "level": "info", "run": "d46488a88bbcb7e04c9d7df5", "seconds": {"large_sales": 1.2453, "products": 2.6876, "tpv": 2.6806, "customers": 3.5515, "forms": 0.2673, "clean up": 0.011}, "timestamp": "2026-11-15T23:44:40.965769Z", "node": "serve"}
"""  # noqa: E501
LAST_RUN = "d46488a88bbcb7e04c9d7df5"
LAST_BATCHES = {3, 4, 5}


@pytest.fixture
def log() -> ServiceLog:
    return read_log(LOG)


def client_run(run: str = LAST_RUN, answers: float = 6.0) -> ClientRun:
    seconds = {"parse": 3.0, "encode": 1.0, "send": 2.0} | {"upload": 4.0, "END to answers": answers}
    gateway = {"check": 0.5, "fsync": 0.25, "registry": 0.25}
    return ClientRun(run, 11.5, 1, {"client": 4.0, "Java": 9.0}, seconds | {"download": 0.5}, gateway)


def test_batches_and_final_steps_are_read_and_lines_of_spark_skipped(log: ServiceLog):
    assert log.numbers == {1, 2, 3, 4, 5}
    assert log.batches[1]["rows"] == 45808
    assert list(log.answered) == ["cd30d9d96fc444a79934271f", LAST_RUN]
    assert log.answered[LAST_RUN]["customers"] == 3.5515


def test_a_truncated_line_is_skipped():
    assert read_log(LOG + '{"event": "batch 6 committed", "seconds": {"re') == read_log(LOG)


def test_the_overhead_is_the_trigger_without_the_work(log: ServiceLog):
    assert log.overheads({3, 4}) == [341 - 179, 310 - 131]


def test_an_idle_trigger_is_no_batch(log: ServiceLog):
    assert log.overheads({1}) == [1556 - 1117]
    assert log.overheads({2}) == []


def test_the_cost_of_a_batch_is_a_median_and_a_maximum_in_milliseconds(log: ServiceLog):
    costs = batch_costs(log)

    assert costs["count"] == 5
    assert costs["overhead_milliseconds"] == {"count": 3, "median": 179, "max": 439}
    assert costs["commit_milliseconds"] == pytest.approx({"count": 5, "median": 17.0, "max": 37.1})


def test_without_batches_there_is_no_cost():
    assert batch_costs(read_log(""))["overhead_milliseconds"] == {"count": 0, "median": None, "max": None}


def test_a_breakdown_adds_up_the_batches_of_one_run(log: ServiceLog):
    result = breakdown(client_run(), LAST_BATCHES, log)

    batches = result["thread_seconds"]["batches"]
    assert batches["compute"] == pytest.approx(3.6359)
    assert batches["commit"] == pytest.approx(0.0166 + 0.017 + 0.0118)
    assert batches["Spark's overhead"] == pytest.approx(0.162 + 0.179)
    assert (result["batches"], result["batches_with_overhead"]) == (3, 2)


def test_a_breakdown_has_all_steps_from_parsing_to_the_download(log: ServiceLog):
    result = breakdown(client_run(), LAST_BATCHES, log)

    steps = result["thread_seconds"]
    assert steps["client to durable"]["HTTP"] == 1.0
    assert list(steps["client to durable"]) == ["parse", "encode", "HTTP", "check", "fsync", "registry"]
    assert steps["final step"]["clean up"] == 0.011
    assert steps["answers"] == {"download": 0.5}
    assert result["parts"] == {"upload": 4.0, "END to answers": 6.0, "download": 0.5}
    assert result["wall_seconds"] == 11.5


def test_the_data_and_a_tenth_of_it_take_turns(tmp_path: Path, monkeypatch):
    """Then the data once more, and the tenth, whose log lines have the figures of the batch before."""
    waits = {"all": iter([9.0, 2.0, 4.0, 5.0]), "tenth": iter([1.0, 8.0, 2.0, 3.0])}
    order: list[str] = []

    def run_client(data: Path, service: Service, out: Path) -> ClientRun:
        order.append(data.name)
        return client_run(answers=next(waits[data.name]))

    monkeypatch.setattr(streaming, "run_client", run_client)
    (tmp_path / "log").write_text(LOG)
    service = Service("http://kopi", process=None, log=tmp_path / "log")

    result = streaming.measure_streaming(service, Path("all"), Path("tenth"), 3, lambda _: None)

    assert order == ["all", "tenth"] * 4
    assert result["end_to_answers"]["median_seconds"] == 4.0
    assert result["end_to_answers"]["tenth_median_seconds"] == 2.0
    assert result["end_to_answers"]["ratio"] == 2.0
    assert result["end_to_answers"]["share"] == pytest.approx(4.0 / 11.5)
    assert result["breakdown"]["cpu_seconds"] == {"client": 4.0, "Java": 9.0}
    assert result["batches"]["count"] == 0  # all of the log is older than the rounds
    json.dumps(result)

"""What Spark said in a life that ended badly is kept, and does not fill the disk."""

import stat

from kopitiam.landing import kept_logs
from kopitiam.landing.kept_logs import MOST_FILES, SPARK_LOG, KeptLogs
from kopitiam.landing.ownership import owned


def test_a_log_is_kept_for_its_owner_and_cut_to_its_end(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(kept_logs, "MOST_BYTES", 10)
    logs = KeptLogs(tmp_path / "logs", "pipeline-1")
    assert logs.keep(tmp_path) is None
    (tmp_path / SPARK_LOG).write_text("a beginning and the end")
    kept = logs.keep(tmp_path)
    assert kept is not None and kept.name.startswith("spark-pipeline-1-2")
    assert kept.read_text() == "nd the end"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not (tmp_path / SPARK_LOG).exists()


def test_only_the_latest_logs_of_a_node_are_kept(tmp_path) -> None:
    for name in ("pipeline-1", "pipeline-11"):
        for life in range(MOST_FILES + 2):
            (tmp_path / SPARK_LOG).write_text(f"life {life}")
            KeptLogs(tmp_path / "logs", name).keep(tmp_path)
        found = sorted((tmp_path / "logs").glob(f"spark-{name}-2*"))
        assert [file.read_text() for file in found] == [f"life {life}" for life in range(2, MOST_FILES + 2)]


def test_a_service_that_was_killed_has_its_log_kept_by_the_next_one(tmp_path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / SPARK_LOG).write_text("last words")
    with owned(tmp_path) as scratch:
        (kept,) = (tmp_path / "logs").glob("spark-serve-*.log")
        assert kept.read_text() == "last words"
        (scratch / SPARK_LOG).write_text("nothing to tell")
    assert len(list((tmp_path / "logs").iterdir())) == 1

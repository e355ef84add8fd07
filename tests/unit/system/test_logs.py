"""Spark logs of crashed processes are kept, within limits."""

import os
import stat

from kopitiam.runtime.home import exclusive_home
from kopitiam.system import logs as system_logs
from kopitiam.system.logs import MOST_FILES, SPARK_LOG, KeptLogs


def test_a_log_is_kept_for_its_owner_and_cut_to_its_end(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(system_logs, "MOST_BYTES", 10)
    logs = KeptLogs(tmp_path / "logs", "pipeline-1")
    assert logs.keep(tmp_path) is None
    (tmp_path / SPARK_LOG).write_text("a beginning and the end")
    kept = logs.keep(tmp_path)
    assert kept is not None and kept.name.startswith("spark-pipeline-1-2")
    assert kept.read_text() == "nd the end"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not (tmp_path / SPARK_LOG).exists()


def test_a_rotated_log_is_kept_with_its_older_generation(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(system_logs, "MOST_BYTES", 10)
    logs = KeptLogs(tmp_path / "logs", "pipeline-1")
    (tmp_path / f"{SPARK_LOG}.1").write_text("older, with the cause: ")
    (tmp_path / SPARK_LOG).write_text("end")
    kept = logs.keep(tmp_path)
    assert kept is not None and kept.read_text() == "cause: end"
    assert list(tmp_path.glob(f"{SPARK_LOG}*")) == []
    (tmp_path / f"{SPARK_LOG}.1").write_text("cut a moment ago")
    (tmp_path / SPARK_LOG).touch()
    kept = logs.keep(tmp_path)
    assert kept is not None and kept.read_text() == "moment ago"


def test_a_home_that_a_kept_log_makes_is_for_its_owner_alone(tmp_path) -> None:
    """`kopi analyze` runs with the umask of the person, and may be the first to write to the home."""
    home = tmp_path / "home"
    (tmp_path / SPARK_LOG).write_text("last words")
    before = os.umask(0o022)
    try:
        kept = KeptLogs(home / "logs", "analyze").keep(tmp_path)
    finally:
        os.umask(before)
    assert kept is not None
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "logs", kept)] == [
        0o700,
        0o700,
        0o600,
    ]


def test_only_the_latest_logs_of_a_node_are_kept(tmp_path) -> None:
    for name in ("pipeline-1", "pipeline-11"):
        for life in range(MOST_FILES + 2):
            (tmp_path / SPARK_LOG).write_text(f"life {life}")
            KeptLogs(tmp_path / "logs", name).keep(tmp_path)
        found = sorted((tmp_path / "logs").glob(f"spark-{name}-2*"))
        assert [file.read_text() for file in found] == [f"life {life}" for life in range(2, MOST_FILES + 2)]


def test_the_log_of_a_killed_service_is_kept_by_the_next_one(tmp_path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / SPARK_LOG).write_text("last words")
    with exclusive_home(tmp_path) as scratch:
        (kept,) = (tmp_path / "logs").glob("spark-serve-*.log")
        assert kept.read_text() == "last words"
        (scratch / SPARK_LOG).write_text("nothing to tell")
    assert len(list((tmp_path / "logs").iterdir())) == 1

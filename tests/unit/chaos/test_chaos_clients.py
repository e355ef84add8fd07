"""Clients and client pools without a gateway: their outcomes, and that they end."""

import tempfile
import threading
import time
from pathlib import Path

from kopitiam.client.http import Transport
from kopitiam_chaos.chaos import temporary_folder_for_all
from kopitiam_chaos.clients import ClientPool, DataFolder, SubmittingClient

UNREACHABLE_URL = "http://127.0.0.1:9"


def client(folder, number=1, patience=0.0, **changed):
    transport = Transport(UNREACHABLE_URL, patience_seconds=patience)
    return SubmittingClient(number, DataFolder(folder, {}), transport, None, patience, **changed)


def test_a_client_without_a_gateway_reports_the_failure_and_ends(tmp_path):
    reported = []
    submitter = client(tmp_path, on_outcome=reported.append)
    submitter.work(threading.Event())
    assert submitter.has_ended
    assert submitter.outcomes == reported
    outcome = reported[0]
    assert (outcome.run, outcome.is_exact) == (None, False)
    assert outcome.complaint.startswith(f"{UNREACHABLE_URL} is not available")
    assert outcome.to_dict()["rows"] is None


def test_a_generated_folder_has_the_row_counts_of_its_tables(tmp_path):
    folder = DataFolder.generated(tmp_path / "data", 0.00005, seed=3)
    written = (tmp_path / "data" / "stores" / "stores.csv").read_text(encoding="utf-8").splitlines()
    assert folder.rows["stores"] == len(written) - 1
    assert {"transactions", "transaction_items", "users", "menu_items"} <= set(folder.rows)


def test_abort_ends_all_clients_of_a_pool_within_seconds_whatever_their_patience(tmp_path):
    pool = ClientPool([client(tmp_path, number, patience=600) for number in (1, 2, 3)])
    pool.start()
    begun = time.monotonic()
    pool.abort()
    assert pool.ended == 3
    assert time.monotonic() - begun < 5
    assert len(pool.outcomes) == 3
    assert not any(outcome.is_exact for outcome in pool.outcomes)


def test_temporary_files_of_clients_are_removed_with_their_shared_folder():
    before = tempfile.gettempdir()
    with temporary_folder_for_all() as folder:
        left = Path(tempfile.mkdtemp())
        (left / "half.csv").write_text("half")
        assert left.is_relative_to(folder)
    assert not folder.exists()
    assert tempfile.gettempdir() == before

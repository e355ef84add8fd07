"""Clients without a gateway, and a pool of them: what they say, and that they end."""

import tempfile
import threading
import time
from pathlib import Path

from kopitiam.client.http import Transport
from kopitiam_chaos.chaos import temporary_folder_for_all
from kopitiam_chaos.clients import ClientPool, DataFolder, SubmittingClient

NOBODY = "http://127.0.0.1:9"


def client(folder, number=1, patience=0.0, **changed):
    transport = Transport(NOBODY, patience_seconds=patience)
    return SubmittingClient(number, DataFolder(folder, {}), transport, None, patience, **changed)


def test_a_client_that_finds_no_gateway_says_so_and_ends(tmp_path):
    heard = []
    lonely = client(tmp_path, on_outcome=heard.append)
    lonely.work(threading.Event())
    assert lonely.has_ended
    assert lonely.outcomes == heard
    outcome = heard[0]
    assert (outcome.run, outcome.is_exact) == (None, False)
    assert outcome.complaint.startswith(f"{NOBODY} is not available")
    assert outcome.to_dict()["rows"] is None


def test_a_generated_folder_knows_how_many_rows_it_has(tmp_path):
    folder = DataFolder.generated(tmp_path / "data", 0.00005, seed=3)
    written = (tmp_path / "data" / "stores" / "stores.csv").read_text(encoding="utf-8").splitlines()
    assert folder.rows["stores"] == len(written) - 1
    assert {"transactions", "transaction_items", "users", "menu_items"} <= set(folder.rows)


def test_a_crowd_that_has_to_leave_does_so_however_patient_its_clients_are(tmp_path):
    pool = ClientPool([client(tmp_path, number, patience=600) for number in (1, 2, 3)])
    pool.start()
    begun = time.monotonic()
    pool.abort()
    assert pool.ended == 3
    assert time.monotonic() - begun < 5
    assert len(pool.outcomes) == 3
    assert not any(outcome.is_exact for outcome in pool.outcomes)


def test_what_clients_leave_behind_goes_with_the_folder_that_all_share():
    before = tempfile.gettempdir()
    with temporary_folder_for_all() as folder:
        left = Path(tempfile.mkdtemp())
        (left / "half.csv").write_text("half")
        assert left.is_relative_to(folder)
    assert not folder.exists()
    assert tempfile.gettempdir() == before

"""Clients that upload runs while nodes of a fleet fail, and check that the answers are exact."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fleets import PATIENCE_SECONDS, Fleet

from kopitiam.client.http import Transport
from kopitiam_chaos.clients import ClientPool, DataFolder, SubmittingClient
from trickle import CHUNK_ROWS, Trickle, check_answers, rows_of


@contextlib.contextmanager
def trickling(fleet: Fleet, data: Path, out: Path, chunk_rows: int = CHUNK_ROWS) -> Iterator[Trickle]:
    """Upload a run while the block lasts, with some chunks processed when the block begins; then check its
    answers."""
    client = Trickle(fleet.url, data, chunk_rows)
    with ThreadPoolExecutor(1) as thread, contextlib.closing(client):
        sending = thread.submit(client.send)
        fleet.wait(lambda: fleet.processed(client.run) or sending.done(), "processing the uploaded chunks")
        yield client
        client.may_finish.set()
        sending.result(PATIENCE_SECONDS)
        client.fetch(out)
    check_answers(data, out)


@contextlib.contextmanager
def submitting(fleet: Fleet, data: Path) -> Iterator[list[str]]:
    """Submit small runs one after the other while the block lasts, and check their answers; yields their
    ids."""
    runs: list[str] = []
    transport = Transport(fleet.url, patience_seconds=PATIENCE_SECONDS)
    folder = DataFolder(data, rows_of(data))
    client = SubmittingClient(
        1, folder, transport, fleet.registry, PATIENCE_SECONDS, lambda outcome: runs.append(str(outcome.run))
    )
    pool = ClientPool([client])
    pool.start()
    try:
        yield runs
        pool.finish(2 * PATIENCE_SECONDS)
    finally:
        pool.abort()
    assert pool.ended == 1, fleet.status_text()
    assert [outcome.complaint for outcome in pool.outcomes if not outcome.is_exact] == [], fleet.status_text()

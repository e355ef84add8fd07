"""Kills a gateway around every change of a data set: the same call again finishes it, or the janitor does."""

from typing import Any

import httpx
import pytest
from gateway_client import GatewayClient, eventually
from test_gateway_data_sets import EVERY, DataClient, file_of

from kopitiam.system.crash_points import POINTS
from sampling import sampled

SENDING = ("files.named", "file.ended", "data.sealing", "data.sealed", "table.announced")
REMOVING = ("data.dropping", "data.dropped", "purge.recorded", "garbage.marked", "garbage.removed")
KEPT = {"KOPI_GATEWAY__KEEP_VERSIONS": "1"}


def test_every_point_of_data_sets_is_tried() -> None:
    own = {point for point in POINTS if point.startswith(("files.", "file.", "data.", "purge.", "garbage."))}
    assert own == {*SENDING, *REMOVING, "data.asked"} - {"table.announced"}


def landed(client: GatewayClient) -> set[str]:
    """The ids below which chunks lie."""
    return {path.parent.name for path in client.home.landing.rglob("*.parquet")}


@pytest.mark.parametrize("point", sampled(SENDING, 3))
@pytest.mark.long
def test_an_upload_goes_on_with_the_same_calls(start, point: str) -> None:
    doomed = start(KOPI_CRASH_AT=point)
    data = DataClient(doomed.connect())
    run = data.opened()

    def send() -> Any:
        data.send(run, *EVERY)
        return data.seal(run)

    with pytest.raises(httpx.TransportError):
        send()
        data.client.status(run)  # END is announced by another thread
        eventually(lambda: doomed.popen.poll() is not None)
        data.client.status(run)
    assert doomed.is_killed()
    data = DataClient(start().connect())
    sealed = send() if data.client.status(run)["state"] == "open" else data.seal(run)
    assert (sealed.status_code, sealed.json()["data"]["version"]) == (200, 1)
    assert len(data.show().json()["versions"]) == 1
    assert len(landed(data.client)) == len(EVERY)
    assert data.open(upload=False).status_code == 201


def test_an_ask_is_opened_once(start) -> None:
    data = DataClient(start().connect())
    data.submit(*EVERY)
    doomed = start("gateway-2", KOPI_CRASH_AT="data.asked")
    request = {"idempotency_key": "k", "data": {"name": "sales"}}
    with pytest.raises(httpx.TransportError):
        doomed.connect().http.post("/api/v1/runs", json=request)
    assert doomed.is_killed()
    again = [data.http.post("/api/v1/runs", json=request) for _ in range(2)]
    assert [answer.status_code for answer in again] == [200, 200]
    assert {answer.json()["state"] for answer in again} == {"sealed"}
    assert len(data.http.get("/api/v1/runs").json()["runs"]) == 2


@pytest.mark.parametrize("point", sampled(REMOVING, 3))
@pytest.mark.long
def test_what_is_deleted_goes_whatever_dies(start, point: str) -> None:
    """One version is kept: the file that the second one replaces is garbage."""
    doomed = start(KOPI_CRASH_AT=point, **KEPT)
    data = DataClient(doomed.connect())
    run = data.submit(*EVERY)
    with pytest.raises(httpx.TransportError):
        if point.startswith("garbage"):
            later = data.submit(file_of("users", content="other"), first=50)
            data.client.cancel(run), data.client.cancel(later)
            eventually(lambda: doomed.popen.poll() is not None)
            data.client.status(run)
        elif point.startswith("purge"):
            data.http.delete(f"/api/v1/runs/{run}", params={"purge": True})
        else:
            data.http.delete("/api/v1/data/sales")
    assert doomed.is_killed()
    data = DataClient(start(**KEPT).connect())
    if point == "data.dropping":
        assert data.http.delete("/api/v1/data/sales").json()["runs"] == 1
    if point.startswith("data"):
        eventually(lambda: landed(data.client) == set())
        assert data.http.get("/api/v1/data").json() == {"data_sets": []}
    elif point.startswith("purge"):
        assert data.http.get(f"/api/v1/runs/{run}").status_code == 404
        assert data.open(upload=False).status_code == 201
    else:
        eventually(lambda: len(landed(data.client)) == len(EVERY))
        assert len(data.show().json()["versions"]) == 1

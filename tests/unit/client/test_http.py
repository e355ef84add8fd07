"""HTTP calls over real sockets: which failures are retried, for how long, and which errors are raised."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kopitiam.client.http import Servers, Transport
from kopitiam.client.refusals import ConflictError, IncompleteError
from kopitiam.contracts.errors import (
    ConfigError,
    InputError,
    RunNotFound,
    RunOver,
    ServiceError,
    TableSealed,
    Unavailable,
)
from tiny_gateway import FakeTime, Fault, TinyGateway, serving

TOKEN = "s3cret-token-of-the-north-branch"


@pytest.fixture
def gateway() -> Iterator[TinyGateway]:
    with serving(TOKEN) as gateway:
        yield gateway


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def transport(gateway: TinyGateway, time: FakeTime) -> Iterator[Transport]:
    transport = Transport(gateway.url, TOKEN, sleep=time.sleep, clock=time.clock, patience_seconds=120)
    yield transport
    transport.close()


LIST = "/runs?limit=5"


def test_a_sound_call_is_made_once_with_the_token(
    gateway: TinyGateway, transport: Transport, time: FakeTime
) -> None:
    assert transport.call("GET", LIST).json() == {"runs": [], "next": None, "total": None}
    assert gateway.calls == ["GET /api/v1/runs"]
    assert gateway.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    assert time.slept == []


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_temporary_refusals_are_retried(
    gateway: TinyGateway, transport: Transport, time: FakeTime, status: int
) -> None:
    gateway.faults.append(Fault("GET", times=3, status=status))
    transport.call("GET", LIST)
    assert len(gateway.calls) == 4
    assert len(time.slept) == 3


def test_temporary_failures_are_reported_with_the_message_of_the_gateway(
    gateway: TinyGateway, time: FakeTime
) -> None:
    told: list[str] = []
    time.on_sleep = lambda: told.append("pause")
    transport = Transport(gateway.url, TOKEN, sleep=time.sleep, clock=time.clock, on_retry=told.append)
    full = b'{"error": "unavailable", "message": "storage: No space left on device; make room"}'
    gateway.faults.append(Fault("GET", times=2, status=503, body=full))
    transport.call("GET", LIST)
    transport.close()
    assert told == ["503: storage: No space left on device; make room", "pause"] * 2


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_broken_connection_is_retried(gateway: TinyGateway, transport: Transport, is_stored: bool) -> None:
    gateway.faults.append(Fault("GET", times=2, is_stored=is_stored))
    transport.call("GET", LIST)
    assert len(gateway.calls) == 3


def test_retry_after_is_waited_for(gateway: TinyGateway, transport: Transport, time: FakeTime) -> None:
    gateway.faults.append(Fault("GET", times=2, status=503, retry_after=7))
    transport.call("GET", LIST)
    assert time.slept == [7, 7]


def test_pauses_grow_with_jitter_up_to_a_bound(
    gateway: TinyGateway, transport: Transport, time: FakeTime
) -> None:
    gateway.faults.append(Fault("GET", times=10, status=503))
    transport.call("GET", LIST)
    for pause, longest in zip(time.slept, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5], strict=True):
        assert longest / 2 <= pause <= longest


def test_patience_ends_within_its_bound(gateway: TinyGateway, transport: Transport, time: FakeTime) -> None:
    gateway.faults.append(Fault("GET", times=1000, status=503))
    with pytest.raises(
        Unavailable, match=r"is not available: 503: told to fail \(tried \d+ times in 1[12]\d s\)"
    ):
        transport.call("GET", LIST)
    assert time.now <= 120


def test_without_patience_there_is_still_one_attempt(gateway: TinyGateway) -> None:
    with contextlib.closing(Transport(gateway.url, TOKEN, patience_seconds=0)) as hasty:
        assert hasty.call("GET", LIST).status_code == 200


def test_a_retry_after_beyond_the_patience_is_not_waited_for(
    gateway: TinyGateway, transport: Transport, time: FakeTime
) -> None:
    gateway.faults.append(Fault("GET", status=503, retry_after=3600))
    with pytest.raises(Unavailable):
        transport.call("GET", LIST)
    assert time.slept == []


def test_an_address_where_nothing_listens_is_unavailable(
    gateway: TinyGateway, transport: Transport, time: FakeTime
) -> None:
    gateway.stop()
    with pytest.raises(Unavailable):
        transport.call("GET", LIST)
    assert 100 < time.now <= 120
    gateway.start()


def test_a_restarted_gateway_is_reached_again(
    gateway: TinyGateway, transport: Transport, time: FakeTime
) -> None:
    transport.call("GET", LIST)
    gateway.stop()
    time.on_sleep = lambda: gateway.start() if len(time.slept) == 4 else None
    transport.call("GET", LIST)
    assert len(time.slept) == 4


def test_an_abandoned_branch_stops_and_the_transport_goes_on(
    gateway: TinyGateway, transport: Transport, time: FakeTime
) -> None:
    gateway.faults.append(Fault("GET", times=2, status=503))
    branch = transport.branch()
    time.on_sleep = branch.abandon
    with pytest.raises(Unavailable):
        branch.call("GET", LIST)
    assert len(time.slept) == 1
    transport.call("GET", LIST)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (401, "unauthorized", ConfigError),
        (403, "forbidden", ConfigError),
        (404, "not_found", RunNotFound),
        (409, "conflict", ConflictError),
        (409, "incomplete", IncompleteError),
        (409, "sealed", TableSealed),
        (410, "over", RunOver),
        (413, "too_large", InputError),
        (415, "unsupported", InputError),
        (422, "invalid", InputError),
        (400, "bad", ServiceError),
        (500, "internal", ServiceError),
    ],
)
def test_a_permanent_refusal_is_raised_at_once(
    gateway: TinyGateway, transport: Transport, status: int, error: str, kind: type[Exception]
) -> None:
    gateway.faults.append(Fault("GET", status=status, error=error))
    with pytest.raises(kind, match="told to fail"):
        transport.call("GET", LIST)
    assert len(gateway.calls) == 1


def test_a_wrong_token_is_the_users_configuration(gateway: TinyGateway) -> None:
    transport = Transport(gateway.url, "another")
    with pytest.raises(ConfigError, match="no such token"):
        transport.call("GET", LIST)
    transport.close()


def test_a_response_that_is_no_gateways_is_a_service_error(
    gateway: TinyGateway, transport: Transport
) -> None:
    gateway.faults.append(Fault("GET", status=404, body=b"<html>"))
    with pytest.raises(ServiceError, match="not that of a Kopitiam gateway"):
        transport.call("GET", LIST)


def test_the_token_is_in_no_log_and_no_error(
    gateway: TinyGateway, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = []
    for fault in (
        Fault("GET", status=401, error=TOKEN),
        Fault("GET", times=99, status=503),
        Fault("GET", 99),
    ):
        gateway.faults = [fault]
        with pytest.raises((ConfigError, Unavailable)) as caught:
            transport.call("GET", LIST)
        texts.append(f"{caught.value!r} {caught.value}")
    assert TOKEN not in caplog.text + "".join(texts) + repr(transport)


def test_a_token_that_the_gateway_repeats_is_masked(gateway: TinyGateway, transport: Transport) -> None:
    with pytest.raises(RunNotFound) as caught:
        transport.call("GET", f"/{TOKEN}")
    assert TOKEN not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "naïve"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_quoted(token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Transport("http://127.0.0.1:1", token)
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    "server", ["", "localhost:8440", "ftp://x", "http://", "http://a:1/?q=1", "http://[::1"]
)
def test_an_invalid_server_address_is_refused(server: str) -> None:
    with pytest.raises(ConfigError, match="expected an address"):
        Transport(server)


def test_a_password_in_the_address_is_refused_without_being_quoted() -> None:
    with pytest.raises(ConfigError) as caught:
        Transport("http://me:hush@example.org")
    assert "hush" not in str(caught.value)


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificates"):
        Transport("https://127.0.0.1:1", verify=tmp_path / "none.pem")


def test_a_file_is_downloaded_completely_or_not_at_all(
    gateway: TinyGateway, transport: Transport, tmp_path: Path
) -> None:
    gateway.faults.append(Fault("GET", times=2, is_stored=True))
    transport.fetch(LIST, tmp_path / "list.json")
    assert (tmp_path / "list.json").read_bytes() == b'{"runs":[],"next":null,"total":null}'
    gateway.faults.append(Fault("GET", status=410, error="over"))
    with pytest.raises(RunOver):
        transport.fetch(LIST, tmp_path / "other.json")
    assert [file.name for file in tmp_path.iterdir()] == ["list.json"]


def test_a_folder_that_cannot_be_written_is_the_users_input(
    gateway: TinyGateway, transport: Transport, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        transport.fetch(LIST, tmp_path / "nowhere" / "list.json")


@pytest.mark.parametrize(("status", "error"), [(421, "host"), (400, "host"), (403, "origin")])
def test_a_gateway_with_another_name_is_a_config_error(
    gateway: TinyGateway, transport: Transport, time: FakeTime, status: int, error: str
) -> None:
    gateway.faults.append(Fault("GET", status=status, error=error))
    with pytest.raises(ConfigError) as refused:
        transport.call("GET", LIST)
    assert str(refused.value) == f"{gateway.url}: told to fail"
    assert refused.value.exit_code == 2
    assert time.slept == []


# -- several gateways


@pytest.fixture
def other() -> Iterator[TinyGateway]:
    with serving(TOKEN) as gateway:
        yield gateway


@pytest.fixture
def fleet(gateway: TinyGateway, other: TinyGateway, time: FakeTime) -> Iterator[Transport]:
    servers = f"{gateway.url}, {other.url}/"
    transport = Transport(servers, TOKEN, sleep=time.sleep, clock=time.clock, patience_seconds=120)
    yield transport
    transport.close()


def test_a_gateway_that_is_gone_is_left_for_the_next_one_at_once_and_for_good(
    gateway: TinyGateway, other: TinyGateway, fleet: Transport, time: FakeTime
) -> None:
    gateway.stop()
    for _ in range(3):
        fleet.call("GET", LIST)
    gateway.start()
    fleet.call("GET", LIST)
    assert (len(other.calls), gateway.calls, time.slept) == (4, [], [])
    other.stop()
    fleet.call("GET", LIST)
    other.start()
    assert (len(gateway.calls), time.slept) == (1, [])


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_that_cannot_answer_is_left_too(
    gateway: TinyGateway, other: TinyGateway, fleet: Transport, time: FakeTime, status: int
) -> None:
    gateway.faults.append(Fault("GET", status=status, retry_after=30))
    fleet.call("GET", LIST)
    assert (len(gateway.calls), len(other.calls), time.slept) == (1, 1, [])


@pytest.mark.parametrize("status", [408, 429])
def test_a_gateway_that_wants_fewer_calls_is_not_left(
    gateway: TinyGateway, other: TinyGateway, fleet: Transport, status: int
) -> None:
    gateway.faults.append(Fault("GET", status=status))
    fleet.call("GET", LIST)
    assert (len(gateway.calls), other.calls) == (2, [])


def test_between_rounds_over_all_gateways_there_are_pauses_and_the_error_names_them_all(
    gateway: TinyGateway, other: TinyGateway, fleet: Transport, time: FakeTime
) -> None:
    for each in (gateway, other):
        each.faults.append(Fault("GET", times=1000, status=503))
    with pytest.raises(Unavailable, match=f"^{gateway.url}, {other.url} is not available: 503"):
        fleet.call("GET", LIST)
    assert abs(len(gateway.calls) - len(other.calls)) <= 1
    assert len(time.slept) in (len(gateway.calls) - 1, len(gateway.calls))
    assert time.now <= 120


def test_threads_that_fail_together_leave_a_gateway_once(gateway: TinyGateway, other: TinyGateway) -> None:
    servers = Servers([gateway.url, other.url, gateway.url])
    assert len(servers) == 2
    for _ in range(2):
        servers.leave(gateway.url)
    assert servers.current == other.url


@pytest.mark.parametrize("servers", ["", ",", "http://a,", "http://a,ftp://b", [], ["http://a", "b"]])
def test_every_address_must_be_one(servers: str | list[str]) -> None:
    with pytest.raises(
        ConfigError, match=r"^server '.*': expected an address such as http://127\.0\.0\.1:8440$"
    ):
        Transport(servers)

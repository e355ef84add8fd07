"""Slow senders and readers over real sockets, while an honest client uploads."""

import json
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from gateway_client import GatewayClient, RawUpload, eventually

from kopitiam.gateway.connections import MOST_HEAD_BYTES

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def connect(
    client: GatewayClient, source: str = "127.0.0.1", receive_buffer: int | None = None
) -> socket.socket:
    place = urlsplit(client.url)
    assert place.hostname and place.port
    opened = socket.socket()
    if receive_buffer:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    opened.bind((source, 0))
    opened.settimeout(30)
    opened.connect((place.hostname, place.port))
    return opened


def read_to_the_end(connection: socket.socket) -> bytes:
    """Read until the gateway has closed the connection."""
    data = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    return data


@contextmanager
def dribbling(uploads: list[RawUpload], pause: float = 0.05) -> Iterator[None]:
    """Send a byte to each upload now and then inside the block, ignoring responses."""
    is_over = threading.Event()

    def dribble() -> None:
        while not is_over.wait(pause):
            for upload in uploads:
                with suppress(OSError):
                    upload.send(b"x")

    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        for upload in uploads:
            upload.close()


def test_sixteen_slow_senders_do_not_block_an_honest_client(start) -> None:
    """From the same address, with the default limits."""
    client = start().connect()
    slow_run, run = client.open_run(), client.open_run()
    slow = [RawUpload(client.url, slow_run, size=1000, number=number) for number in range(16)]
    with dribbling(slow):
        eventually(lambda: client.metric("kopitiam_bodies_under_way") == 8)
        answers = [client.put(run, number).status_code for number in range(6)]
    assert answers == [201] * 6


def test_slow_senders_of_one_address_leave_half_of_the_places_to_others(serve) -> None:
    client = serve(max_bodies=4, min_bytes_per_second=0).client  # no least rate
    run = client.open_run()
    slow = [RawUpload(client.url, run, size=1000, number=number, source="127.0.0.2") for number in range(16)]
    with dribbling(slow):
        eventually(lambda: client.metric("kopitiam_bodies_under_way") == 2)
        assert [client.put(run, 100 + number).status_code for number in range(4)] == [201] * 4


def test_a_body_below_the_least_rate_gets_408(serve) -> None:
    client = serve(min_bytes_per_second=100_000, grace_seconds=0.3).client
    run = client.open_run()
    upload = RawUpload(client.url, run, size=100_000)
    with dribbling([upload]):
        status, problem = upload.answer()
    assert (status, problem["error"]) == (408, "slow")
    assert "100,000 bytes a second" in problem["message"]
    assert client.incoming() == []
    assert client.put(run).status_code == 201


@pytest.mark.parametrize("path", ["/api/v1/runs", None])
def test_a_body_has_a_deadline_however_steadily_it_comes(serve, path: str | None) -> None:
    client = serve(body_seconds=0.5, min_bytes_per_second=0).client
    upload = RawUpload(client.url, client.open_run(), size=50_000, path=path)
    with dribbling([upload]):
        status, problem = upload.answer()
    assert status == 408
    assert "within 0.5 s" in problem["message"]


def test_half_sent_heads_are_closed_and_honest_requests_go_through(start) -> None:
    client = start(KOPI_GATEWAY__HEAD_SECONDS="0.5").connect()
    run = client.open_run()
    with ExitStack() as stack:
        halves = [stack.enter_context(closing(connect(client))) for _ in range(50)]
        silent = [stack.enter_context(closing(connect(client))) for _ in range(5)]
        for half in halves:
            half.sendall(HEAD)
        assert client.put(run).status_code == 201
        with dribbling_heads(halves):
            answers = [read_to_the_end(half) for half in halves]
        assert {int(answer.split()[1]) for answer in answers if answer} == {408}
        assert [read_to_the_end(connection) for connection in silent] == [b""] * 5
        assert client.put(run, 1).status_code == 201


@contextmanager
def dribbling_heads(connections: list[socket.socket]) -> Iterator[None]:
    is_over = threading.Event()

    def dribble() -> None:
        while not is_over.wait(0.1):
            for connection in connections:
                with suppress(OSError):
                    connection.send(b"x")

    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_second_request_of_a_connection_has_the_same_limits(serve) -> None:
    client = serve(head_seconds=0.3).client
    with closing(connect(client)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(HEAD)
        assert b" 408 " in read_to_the_end(connection)


def test_a_connection_may_wait_between_requests(serve) -> None:
    client = serve(head_seconds=0.2).client
    with closing(connect(client)) as connection, selectors.DefaultSelector() as waiting:
        waiting.register(connection, selectors.EVENT_READ)
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"ok\n"):
                answer += connection.recv(65536)
            assert waiting.select(0.5) == []  # longer than a head may take


def test_a_head_without_end_is_refused(serve) -> None:
    client = serve().client
    with closing(connect(client)) as connection:
        connection.sendall(HEAD)
        with suppress(OSError):
            for _ in range(2 * MOST_HEAD_BYTES // 1024):
                connection.sendall(b"x" * 1024)
        assert b" 431 " in read_to_the_end(connection)


def test_the_rest_of_a_refused_body_is_read_for_a_bounded_time(serve) -> None:
    client = serve(head_seconds=0.5).client
    upload = RawUpload(client.url, "0" * 24, size=1000)
    with dribbling([upload]):
        assert upload.answer()[0] == 404
        assert upload.ended()


def test_a_response_that_the_client_does_not_read_is_dropped(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(idle_seconds=0.5)
    client = served.client
    run = client.open_run()
    for number in range(3):
        lines = "\n".join(f"{'x' * 200},{row}" for row in range(20_000))
        text = f"table,file,line,reason,row\n{lines}\n"
        place = f"/api/v1/runs/{run}/tables/users/rejected?part={number}&parts=3"
        sent = client.http.put(place, content=text.encode(), headers={"Content-Type": "text/csv"})
        assert sent.status_code == 204
    with closing(connect(client, receive_buffer=4096)) as connection:
        connection.sendall(
            f"GET /api/v1/runs/{run}/rejected.csv HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        assert connection.recv(1024).startswith(b"HTTP/1.1 200")
        eventually(lambda: served.gateway.admission.requests == 1)
        eventually(lambda: served.gateway.admission.requests == 0)
        assert len(read_to_the_end(connection)) < 3 * 20_000 * 200


def test_one_address_has_at_most_half_of_the_connections(serve) -> None:
    client = serve(max_connections=8).client
    with ExitStack() as stack:
        held = [stack.enter_context(closing(connect(client, "127.0.0.2"))) for _ in range(6)]
        refused = [connection for connection in held if b" 503 " in _peek(connection)]
        assert len(refused) == 2
        assert client.http.get("/healthz").status_code == 200
    eventually(lambda: _is_served(client, "127.0.0.2"))


def _peek(connection: socket.socket) -> bytes:
    connection.settimeout(0.5)
    try:
        return connection.recv(65536)
    except TimeoutError:
        return b""


def _is_served(client: GatewayClient, source: str) -> bool:
    with closing(connect(client, source)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return b" 200 " in connection.recv(65536)


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """Settings of a gateway with TLS."""
    issued, file = trustme.CA().issue_cert("127.0.0.1"), tmp_path / "certificate.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(file))
    return {"tls_cert": str(file), "tls_key": str(file)}


def test_a_connection_without_a_handshake_is_closed(serve, certificate: dict[str, str]) -> None:
    client = serve(head_seconds=0.5, **certificate).client
    begun = time.monotonic()
    with closing(connect(client)) as silent, closing(connect(client)) as half:
        half.sendall(b"\x16\x03\x01")  # a handshake begins with these bytes
        assert [read_to_the_end(connection) for connection in (silent, half)] == [b"", b""]
    assert 0.4 < time.monotonic() - begun < 20  # asyncio would wait for a minute


def test_a_tls_connection_waits_between_requests_for_longer_than_a_handshake_may_take(
    serve, certificate: dict[str, str]
) -> None:
    client = serve(head_seconds=0.3, **certificate).client
    with closing(handshaken(client)) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"ok\n"):
                answer += connection.recv(65536)
            time.sleep(0.6)


def test_connections_count_before_their_handshake(serve, certificate: dict[str, str]) -> None:
    client = serve(max_connections=8, **certificate).client
    with ExitStack() as stack:
        held = [stack.enter_context(closing(connect(client, "127.0.0.2"))) for _ in range(6)]
        eventually(lambda: sum(_is_closed(connection) for connection in held) == 2)
        with pytest.raises((OSError, ssl.SSLError)):
            handshaken(client, "127.0.0.2")
        with closing(handshaken(client)) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in other.recv(65536)
        assert sum(_is_closed(connection) for connection in held) == 2
    for _ in range(12):  # each frees its place when it is closed
        eventually(lambda: _can_shake_hands(client, "127.0.0.2"))


def handshaken(client: GatewayClient, source: str = "127.0.0.1") -> ssl.SSLSocket:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    plain = connect(client, source)
    try:
        return trusting.wrap_socket(plain)
    except BaseException:
        plain.close()
        raise


def _can_shake_hands(client: GatewayClient, source: str) -> bool:
    with suppress(OSError):
        handshaken(client, source).close()
        return True
    return False


def _is_closed(connection: socket.socket) -> bool:
    """Whether the gateway has closed the connection."""
    connection.settimeout(0.1)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_forwarded_addresses_of_unknown_proxies_are_ignored(serve) -> None:
    """Otherwise a caller could choose its address, and escape its limits."""
    statuses = _forwarded(serve(max_requests_per_second=1).client)
    assert set(statuses[5:]) == {429}


def test_forwarded_addresses_of_configured_proxies_are_used(serve) -> None:
    statuses = _forwarded(serve(max_requests_per_second=1, proxies=["127.0.0.0/8"]).client)
    assert set(statuses) == {200}


def _forwarded(client: GatewayClient) -> list[int]:
    claims = ({"X-Forwarded-For": f"203.0.113.{number}"} for number in range(12))
    return [client.http.get("/api/v1/runs", headers=claim).status_code for claim in claims]


def test_an_address_that_guesses_tokens_gets_429(serve) -> None:
    client = serve(tokens={"anna": "a-secret"}, max_failures_per_second=1).client

    def call(token: str | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return client.http.get("/api/v1/runs", headers=headers)

    for _ in range(20):  # a page can make a browser send these
        assert call(None).status_code == 401
    assert call("a-secret").status_code == 200
    guesses = [call(f"guess-{number}").status_code for number in range(8)]
    assert guesses[:5] == [401] * 5
    assert 429 in guesses
    assert call("a-secret").status_code == 429  # otherwise guessing could go on
    assert json.loads(call("guess").content)["error"] == "too_fast"
    eventually(lambda: call("a-secret").status_code == 200)

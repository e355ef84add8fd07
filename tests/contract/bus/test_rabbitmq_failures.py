"""Failures of a real broker: crash, hang, cut connection, refusal, deleted queue."""

import contextlib
import itertools
import logging
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pika
import psutil
import pytest
import trustme
from bus_inbox import PATIENCE_SECONDS, Inbox, numbered_message
from relay import Relay

from kopitiam.bus.rabbitmq import RabbitBus
from kopitiam.bus.rabbitmq import bus as rabbit_bus
from kopitiam.contracts.errors import BusUnavailable
from waiting import eventually

CLOSED_PORT = 1
LONG_SECONDS = 30  # more than the detection of a failure takes on any machine


@pytest.fixture
def fleet() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def raw_channel(rabbitmq):
    """A plain AMQP channel to the broker, as an administrator uses it."""
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
        yield connection.channel()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def through(relay: Relay, url: str) -> str:
    return url.replace(f":{port_of(url)}", f":{relay.port}")


def retry(call) -> None:
    """Repeat the call until it succeeds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except (BusUnavailable, pika.exceptions.ChannelClosedByBroker):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@dataclass
class Sent:
    confirmed: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)


@contextlib.contextmanager
def sending_all_the_while(bus, queue: str) -> Iterator[Sent]:
    sent, is_enough = Sent(), threading.Event()

    def send() -> None:
        for number in itertools.count():
            if is_enough.is_set():
                return
            try:
                bus.send(queue, numbered_message(number))
                sent.confirmed.append(number)
            except BusUnavailable:
                sent.refused.append(number)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        is_enough.set()
        thread.join(PATIENCE_SECONDS)


@pytest.mark.long
def test_after_a_kill_confirmed_messages_are_there_and_subscriptions_come_back(rabbitmq, rabbit_node) -> None:
    hasty, patient = rabbit_node(timeout_seconds=0.5), rabbit_node(timeout_seconds=120)
    node, consumed, topic_inbox, listened, kept = rabbit_node(), Inbox(), Inbox(), Inbox(), Inbox()
    node.consume("work", consumed)
    node.subscribe("news.#", topic_inbox)
    node.listen(listened)
    for number in range(20):
        patient.send("kept", numbered_message(number))
    time.sleep(0.2)  # RabbitMQ writes a new queue to disk with a delay

    with sending_all_the_while(hasty, "work") as sent, ThreadPoolExecutor(1) as pool:
        consumed.wait_for(10)
        url = rabbitmq.url
        patient.send("newest", numbered_message(0))
        rabbitmq.kill()
        with pytest.raises(BusUnavailable, match=r"127\.0\.0\.1"):
            hasty.check()
        waiting = pool.submit(patient.send, "work", numbered_message(1_000_000))
        rabbitmq.start()
        assert rabbitmq.url == url
        waiting.result(60)  # the bus reconnects soon
        consumed.wait_for(1_000_000)

    assert sent.refused
    consumed.wait_for(*sent.confirmed)
    patient.publish("news.local", numbered_message(1))
    patient.broadcast(numbered_message(2))
    assert (topic_inbox.wait_for(1), listened.wait_for(2)) == ([1], [2])
    node.consume("kept", kept)
    assert kept.wait_for(19) == list(range(20))
    patient.send("newest", numbered_message(1))  # the queue may have lost its first message, but it works


def test_a_broker_that_hangs_is_noticed_in_time(rabbitmq, rabbit_node) -> None:
    bus, inbox = rabbit_node(timeout_seconds=0.3), Inbox()
    rabbit_node().consume("work", inbox)
    broker = psutil.Process(rabbitmq.pid)
    broker.suspend()
    try:
        started = time.monotonic()
        for call in (
            bus.check,
            lambda: bus.send("work", numbered_message(1)),
            lambda: bus.subscribe("news", inbox),
        ):
            with pytest.raises(BusUnavailable, match=r"no confirmation within 0\.3 s"):
                call()
        assert time.monotonic() - started < LONG_SECONDS
    finally:
        broker.resume()
    retry(lambda: bus.send("work", numbered_message(2)))
    inbox.wait_for(2)


def test_a_cut_connection_is_reopened_and_messages_arrive_again(rabbitmq, rabbit_node) -> None:
    with Relay(port_of(rabbitmq.url)) as relay:
        bus, consumed, topic_inbox = rabbit_node(through(relay, rabbitmq.url)), Inbox(), Inbox()
        bus.consume("work", consumed)
        bus.subscribe("news", topic_inbox)
        for number in range(3):
            relay.hang_up()
            bus.send("work", numbered_message(number))
            consumed.wait_for(number)
        bus.publish("news", numbered_message(9))
        topic_inbox.wait_for(9)


def test_an_unacknowledged_message_of_a_lost_node_goes_to_another(rabbitmq, rabbit_node) -> None:
    with Relay(port_of(rabbitmq.url)) as relay:
        is_at_work, may_go_on, inbox = threading.Event(), threading.Event(), Inbox()

        def take_long(_) -> None:
            is_at_work.set()
            may_go_on.wait(PATIENCE_SECONDS)

        rabbit_node(through(relay, rabbitmq.url)).consume("work", take_long)
        other = rabbit_node()
        other.send("work", numbered_message(1))
        assert is_at_work.wait(PATIENCE_SECONDS)
        other.consume("work", inbox)
        relay.is_refusing = True
        relay.hang_up()
        assert inbox.wait_for(1) == [1]
        may_go_on.set()


def test_a_handler_slower_than_the_heartbeat_costs_no_connection(rabbitmq, rabbit_node, caplog) -> None:
    caplog.set_level(logging.INFO)
    bus, inbox = rabbit_node(f"{rabbitmq.url}?heartbeat=3"), Inbox()

    def take_long(message) -> None:
        inbox(message)
        if message == numbered_message(1):
            threading.Event().wait(8)  # the broker closes a connection after six seconds without a heartbeat
            inbox(numbered_message(101))

    bus.consume("work", take_long)
    bus.send("work", numbered_message(1))
    bus.send("work", numbered_message(2))
    assert inbox.wait_for(2) == [1, 101, 2]
    bus.check()
    assert "again" not in caplog.text


def test_a_deleted_queue_is_declared_again_by_a_sender(rabbit_node, raw_channel, fleet) -> None:
    bus, inbox = rabbit_node(prefix=fleet), Inbox()
    bus.send("work", numbered_message(1))
    raw_channel.queue_delete(f"{fleet}.work")
    bus.send("work", numbered_message(2))
    bus.consume("work", inbox)
    assert inbox.wait_for(2) == [2]


def test_a_deleted_queue_is_declared_again_by_a_consumer(rabbit_node, raw_channel, fleet) -> None:
    bus, inbox = rabbit_node(prefix=fleet), Inbox()
    bus.consume("work", inbox)
    raw_channel.queue_delete(f"{fleet}.work")
    retry(lambda: raw_channel.connection.channel().queue_declare(f"{fleet}.work", passive=True))
    retry(lambda: bus.send("work", numbered_message(1)))  # a new queue may not be ready
    assert inbox.wait_for(1) == [1]


def test_a_failure_of_one_queue_is_raised_and_affects_no_other(rabbit_node, raw_channel, fleet) -> None:
    raw_channel.queue_declare(f"{fleet}.odd", durable=True)  # not a quorum queue
    bus, inbox = rabbit_node(prefix=fleet), Inbox()
    bus.consume("work", inbox)
    for call in (lambda: bus.send("odd", numbered_message(1)), lambda: bus.consume("odd", inbox)):
        with pytest.raises(BusUnavailable, match="inequivalent arg"):
            call()
    bus.send("work", numbered_message(2))
    assert inbox.wait_for(2) == [2]


def test_a_full_queue_refuses_and_loses_nothing(rabbit_node, monkeypatch) -> None:
    monkeypatch.setitem(rabbit_bus.QUEUE, "x-max-length", 10)
    bus, kept, inbox = rabbit_node(), [], Inbox()
    with pytest.raises(BusUnavailable, match="full"):
        for number in range(1000):
            bus.send("work", numbered_message(number))
            kept.append(number)
    bus.consume("work", inbox)
    assert inbox.wait_for(*kept)[: len(kept)] == kept


def test_messages_confirmed_before_a_close_are_stored(rabbit_node) -> None:
    bus, confirmed, inbox = rabbit_node(), [], Inbox()

    def send_until_refused() -> None:
        with pytest.raises(BusUnavailable):
            while True:
                bus.send("work", numbered_message(len(confirmed)))
                confirmed.append(len(confirmed))

    sending = threading.Thread(target=send_until_refused)
    sending.start()
    eventually(lambda: len(confirmed) >= 20)
    bus.close()
    sending.join(PATIENCE_SECONDS)
    rabbit_node().consume("work", inbox)
    assert inbox.wait_for(*confirmed)[: len(confirmed)] == confirmed


def test_fleets_with_different_prefixes_can_share_a_broker(rabbit_node, fleet) -> None:
    ours, theirs, inbox = rabbit_node(), rabbit_node(prefix=fleet), Inbox()
    ours.consume("work", inbox)
    ours.subscribe("#", inbox)
    ours.listen(inbox)
    theirs.send("work", numbered_message(1))
    theirs.publish("news", numbered_message(2))
    theirs.broadcast(numbered_message(3))
    ours.send("work", numbered_message(4))
    ours.publish("news", numbered_message(5))
    ours.broadcast(numbered_message(6))
    assert sorted(inbox.wait_for(4, 5, 6)) == [4, 5, 6]


def test_a_wrong_password_is_reported_at_once_in_one_line(rabbitmq) -> None:
    started = time.monotonic()
    with pytest.raises(BusUnavailable, match="user or password refused") as caught:
        RabbitBus(rabbitmq.url.replace("@", "-wrong@"), connect_seconds=2 * LONG_SECONDS)
    assert time.monotonic() - started < LONG_SECONDS
    assert "wrong" not in str(caught.value), "a password was shown"
    assert "\n" not in str(caught.value)


def test_a_missing_virtual_host_is_reported_at_once(rabbitmq) -> None:
    with pytest.raises(BusUnavailable, match="virtual host"):
        RabbitBus(f"{rabbitmq.url}/elsewhere")


def test_a_closed_port_is_reported_in_time() -> None:
    threads = threading.active_count()
    started = time.monotonic()
    with pytest.raises(BusUnavailable, match=f"127.0.0.1:{CLOSED_PORT}: Connection refused"):
        RabbitBus(f"amqp://127.0.0.1:{CLOSED_PORT}", connect_seconds=0.5)
    assert 0.5 <= time.monotonic() - started < LONG_SECONDS
    eventually(
        lambda: threading.active_count() <= threads
    )  # the thread of the name lookup may still be ending


def test_a_server_that_does_not_answer_is_reported_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(BusUnavailable, match="no answer"):
            RabbitBus(f"amqp://127.0.0.1:{silent.getsockname()[1]}", connect_seconds=0.5)
        assert time.monotonic() - started < LONG_SECONDS


def test_a_broker_that_comes_up_late_is_waited_for(rabbitmq, fleet) -> None:
    with Relay(port_of(rabbitmq.url)) as relay:
        relay.is_refusing = True
        threading.Timer(0.5, setattr, (relay, "is_refusing", False)).start()
        bus = RabbitBus(through(relay, rabbitmq.url), prefix=fleet, connect_seconds=PATIENCE_SECONDS)
        bus.check()
        bus.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_url(rabbitmq, authority):
    """The broker behind a relay that speaks TLS, with a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Relay(port_of(rabbitmq.url), context) as relay:
        yield through(relay, rabbitmq.url).replace("amqp:", "amqps:")


def test_over_tls_with_a_trusted_certificate_messages_flow(tls_url, authority, rabbit_node, tmp_path) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    bus, inbox = rabbit_node(f"{tls_url}?cacertfile={tmp_path / 'ca.pem'}"), Inbox()
    bus.consume("work", inbox)
    bus.send("work", numbered_message(1))
    assert inbox.wait_for(1) == [1]


def test_an_untrusted_certificate_is_refused(tls_url, authority, tmp_path) -> None:
    with pytest.raises(BusUnavailable, match="certificate is not trusted"):
        RabbitBus(tls_url)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with pytest.raises(BusUnavailable, match=r"certificate is not trusted.*localhost"):
        RabbitBus(f"{tls_url}?cacertfile={tmp_path / 'ca.pem'}".replace("127.0.0.1", "localhost"))


def test_a_fault_on_the_io_thread_costs_a_connection_and_no_message(rabbit_node, caplog) -> None:
    bus, inbox = rabbit_node(), Inbox()
    bus.consume("work", inbox)

    def fail() -> None:
        raise RuntimeError("unexpected")

    for number in range(3):
        bus._connection.post(lambda: bus._connection._loop.call_later(0, fail))
        bus.send("work", numbered_message(number))
    assert set(inbox.wait_for(0, 1, 2)) == {0, 1, 2}
    assert "unexpected" in caplog.text

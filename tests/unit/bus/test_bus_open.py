"""Which bus a URL stands for, and what is wrong with it."""

import subprocess
import sys

import pytest
import trustme

from kopitiam.bus import open_bus
from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.rabbitmq.connection import parse_address
from kopitiam.contracts.errors import ConfigError


def test_memory_is_the_bus_of_this_process() -> None:
    bus = open_bus("memory")
    assert isinstance(bus, MemoryBus)
    bus.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "Memory",
        "redis://localhost",
        "amqp",
        "amqp://",
        "amqp://:5672",
        "amqp://host:port",
        "amqp://host:99999",
        "amqp://[::1",
        "amqp://host?heartbeat=0",
        "amqp://host?heartbeat=x",
        "amqp://host?colour=red",
        "amqps://host?cacertfile=/no/such/file",
        "amqps://host?certfile=/no/such/file",
    ],
)
def test_any_other_url_is_a_mistake_in_the_settings(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^bus\.url: ") as caught:
        open_bus(url)
    assert "\n" not in str(caught.value)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        open_bus("amqp://anna:secret@host:nonsense")
    assert "secret" not in str(caught.value)
    assert str(parse_address("amqp://anna:secret@host/fleet")) == "amqp://anna@host:5672/fleet"


def test_what_a_url_leaves_out_is_filled_in() -> None:
    address = parse_address("amqp://host")
    assert (address.host, address.port, address.user, address.vhost) == ("host", 5672, "guest", "/")
    assert address.heartbeat_seconds == 10
    assert address.tls is None


def test_all_that_a_url_says_is_heard() -> None:
    address = parse_address("amqp://a%40b:p%2Fw@[::1]:1234/x%2Fy?heartbeat=3")
    assert (address.host, address.port, address.user, address.password, address.vhost) == (
        "::1",
        1234,
        "a@b",
        "p/w",
        "x/y",
    )
    assert address.heartbeat_seconds == 3


def test_tls_always_verifies(tmp_path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("node").private_key_and_cert_chain_pem.write_to_path(tmp_path / "node.pem")
    address = parse_address(f"amqps://host?cacertfile={tmp_path}/ca.pem&certfile={tmp_path}/node.pem")
    assert address.port == 5671
    assert address.tls is not None
    assert address.tls.check_hostname
    assert address.tls.verify_mode.name == "CERT_REQUIRED"


def test_pika_is_loaded_only_when_it_is_needed() -> None:
    code = "import sys, kopitiam.bus; print(sorted({'pika', 'msgspec'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded == "['msgspec']\n"

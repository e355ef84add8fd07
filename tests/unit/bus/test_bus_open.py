"""Opening a bus by its URL, and the errors of invalid URLs."""

import subprocess
import sys

import pytest
import trustme

from kopitiam.bus import open_bus
from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.rabbitmq.connection import parse_address
from kopitiam.contracts.errors import ConfigError


def test_the_url_memory_opens_the_in_memory_bus() -> None:
    bus = open_bus("memory", "f1")
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
def test_an_invalid_url_raises_a_config_error_of_one_line(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^bus\.url: ") as caught:
        open_bus(url, "f1")
    assert "\n" not in str(caught.value)


def test_errors_and_addresses_omit_the_password() -> None:
    with pytest.raises(ConfigError) as caught:
        open_bus("amqp://anna:secret@host:nonsense", "f1")
    assert "secret" not in str(caught.value)
    assert str(parse_address("amqp://anna:secret@host/fleet")) == "amqp://anna@host:5672/fleet"


def test_parts_missing_from_a_url_get_defaults() -> None:
    address = parse_address("amqp://host")
    assert (address.host, address.port, address.user, address.vhost) == ("host", 5672, "guest", "/")
    assert address.heartbeat_seconds == 10
    assert address.tls is None


def test_all_parts_of_a_url_are_decoded() -> None:
    address = parse_address("amqp://a%40b:p%2Fw@[::1]:1234/x%2Fy?heartbeat=3")
    assert (address.host, address.port, address.user, address.password, address.vhost) == (
        "::1",
        1234,
        "a@b",
        "p/w",
        "x/y",
    )
    assert address.heartbeat_seconds == 3


def test_tls_always_verifies_certificate_and_host_name(tmp_path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("node").private_key_and_cert_chain_pem.write_to_path(tmp_path / "node.pem")
    address = parse_address(f"amqps://host?cacertfile={tmp_path}/ca.pem&certfile={tmp_path}/node.pem")
    assert address.port == 5671
    assert address.tls is not None
    assert address.tls.check_hostname
    assert address.tls.verify_mode.name == "CERT_REQUIRED"


def test_importing_the_bus_package_does_not_load_pika() -> None:
    code = "import sys, kopitiam.bus; print(sorted({'pika', 'msgspec'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded == "['msgspec']\n"

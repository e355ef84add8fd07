"""What a monitor watches: the nodes of a settings file that may change, and the fleet's services."""

import os
from pathlib import Path

import pytest

from kopitiam.contracts.config import NodesSection, Settings
from kopitiam.fleet.home import FleetHome, write_record
from kopitiam.fleet.services.base import write_url
from kopitiam.runtime.monitor import Roster, service_location
from kopitiam.supervision.service_watch import ServiceLocation
from kopitiam.system.settings import load_settings

ONE = 'home = "h"\n[nodes]\ngateways = ["gateway-1"]\nservices = ["rabbitmq"]\n'
TWO = 'home = "h"\n[nodes]\ngateways = ["gateway-1", "gateway-2"]\nservices = ["rabbitmq", "postgresql"]\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.toml"
    file.write_text(ONE)
    return file


def rewrite(config: Path, text: str) -> None:
    """Changes the modification time, however soon after the last write."""
    before = config.stat().st_mtime_ns
    config.write_text(text)
    os.utime(config, ns=(before + 1, before + 1))


def test_a_file_that_changes_gives_other_nodes_and_services(config: Path) -> None:
    roster = Roster(config, load_settings(config))
    assert roster.nodes().gateways == ("gateway-1",)
    assert set(roster.probes()) == {"rabbitmq"}
    rewrite(config, TWO)
    assert roster.nodes().gateways == ("gateway-1", "gateway-2")
    assert set(roster.probes()) == {"rabbitmq", "postgresql"}


@pytest.mark.parametrize(
    "text", ["[nodes", '[nodes]\ngateways = ["Gateway 1"]\n', '[nodes]\nservices = ["x"]\n']
)
def test_an_invalid_file_changes_nothing_and_is_logged_once(
    config: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    roster = Roster(config, load_settings(config))
    rewrite(config, text)
    for _ in range(3):
        assert roster.nodes().gateways == ("gateway-1",)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("the fleet stays as it is: ")
    rewrite(config, TWO)
    assert roster.nodes().gateways == ("gateway-1", "gateway-2")


def test_a_file_that_is_gone_changes_nothing(config: Path) -> None:
    roster = Roster(config, load_settings(config))
    config.unlink()
    assert roster.nodes().gateways == ("gateway-1",)


def test_without_a_file_the_nodes_are_those_of_the_start() -> None:
    assert Roster(None, Settings()).nodes() == NodesSection()


def test_a_service_is_located_by_its_record_and_shown_without_its_credentials(tmp_path: Path) -> None:
    home = FleetHome(tmp_path / "home")
    settings = Settings(home=home.path, nodes=NodesSection(services=("rabbitmq",)))
    home.make()
    write_url(home.service("rabbitmq"), "amqp://kopitiam:secret@127.0.0.1:1")
    assert service_location(settings, "rabbitmq") is None, "it was stopped, or never started"
    write_record(home, "rabbitmq", "service", os.getpid(), ["rabbitmq"])
    assert service_location(settings, "rabbitmq") == ServiceLocation(
        os.getpid(), "amqp://127.0.0.1:1", settings.host
    )

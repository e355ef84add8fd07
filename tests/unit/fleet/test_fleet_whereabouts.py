"""What monitors are told of the fleet's services."""

import os

from kopitiam.contracts.config import NodesSection, Settings
from kopitiam.fleet.home import FleetHome, write_record
from kopitiam.fleet.services.base import write_url
from kopitiam.runtime.member import whereabouts
from kopitiam.supervision.service_watch import ServiceLocation


def test_a_service_is_found_by_its_record_and_shown_without_its_credentials(
    settings: Settings, home: FleetHome
) -> None:
    settings = settings.model_copy(update={"nodes": NodesSection(services=("rabbitmq",))})
    home.make()
    write_url(home.service("rabbitmq"), "amqp://kopitiam:secret@127.0.0.1:1")
    assert whereabouts(settings, "rabbitmq") is None, "it was stopped, or never started"
    write_record(home, "rabbitmq", "service", os.getpid(), ["rabbitmq"])
    assert whereabouts(settings, "rabbitmq") == ServiceLocation(os.getpid(), "amqp://127.0.0.1:1")

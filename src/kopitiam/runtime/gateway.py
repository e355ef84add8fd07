"""A gateway node of a fleet."""

import contextlib
import functools
import threading
from collections.abc import Callable

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.fleet.services import service_settings
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.janitor import run_janitor
from kopitiam.gateway.server import listen, serving
from kopitiam.runtime.member import member
from kopitiam.system.files import keep_private
from kopitiam.system.health import LEAST_BOUND_SECONDS, Pulse
from kopitiam.system.threads import fail, run_threads


def run_gateway(settings: Settings, name: str) -> None:
    """Runs until the node fails, and raises the reason."""
    keep_private(settings.home, settings.umask)
    settings = service_settings(settings).changed(port=settings.gateway_port(name))
    settings.gateway.require_guarded()
    with member(settings, name, "gateway", lambda: listen(settings.gateway)) as node:
        gateway = open_gateway(node.membership.fence, settings, node.registry, node.bus)
        stopping = threading.Event()
        on_ended = functools.partial(fail, node.failure, ServiceError("the gateway's server has ended"))
        bound_seconds = max(LEAST_BOUND_SECONDS, settings.monitor.timeout_seconds)
        pulses: list[Pulse] = []

        def beating(probe: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
            pulses.append(Pulse(probe, bound_seconds))
            return pulses[0].beating()

        def failure_reason() -> str | None:
            is_silent = pulses[0].is_silent
            return f"its server has answered nothing for {bound_seconds:.0f} s" if is_silent else None

        try:
            tidying = functools.partial(run_janitor, gateway, stopping)
            with (
                run_threads(tidying, stop=[stopping.set], failure=node.failure),
                serving(gateway, node.port, on_ended=on_ended, pulse=beating) as url,
            ):
                node.membership.start(url, failure_reason)
                node.failure.result()
        finally:
            close_gateway(gateway)

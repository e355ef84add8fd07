"""A gateway in its own process, for tests that kill it: `python gateway_process.py NAME`.

Settings come from the environment. The first line that it prints is its address.
"""

import sys
import threading
from contextlib import closing

from kopitiam.bus.memory import MemoryBus
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.janitor import run_janitor
from kopitiam.gateway.server import GatewayServer, address, listen
from kopitiam.registry import Fence, open_registry
from kopitiam.system.settings import load_settings


def main(name: str) -> None:
    settings, stopping = load_settings(), threading.Event()
    with (
        closing(open_registry(settings.registry.url, settings.home)) as registry,
        closing(MemoryBus()) as bus,
    ):
        gateway = open_gateway(Fence(name, 1, "a life"), settings, registry, bus)
        janitor = threading.Thread(target=run_janitor, args=(gateway, stopping))
        janitor.start()
        try:
            bound = listen(settings.gateway)
            sys.stdout.write(address(gateway, bound) + "\n")
            sys.stdout.flush()
            GatewayServer(gateway).run([bound])
        finally:
            stopping.set()
            janitor.join()
            close_gateway(gateway)


if __name__ == "__main__":
    main(sys.argv[1])

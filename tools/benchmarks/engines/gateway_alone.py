"""A gateway without a pipeline: chunks become durable and are not processed. Arguments: home and port."""

import sys
from contextlib import closing
from pathlib import Path

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import GatewaySection, Settings
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.server import GatewayServer, listen
from kopitiam.registry.records import Fence
from kopitiam.registry.registry import open_registry


def main(home: Path, port: str) -> None:
    settings = Settings(home=home, gateway=GatewaySection(listen=f"127.0.0.1:{port}"))
    with closing(open_registry("sqlite", home)) as registry, closing(MemoryBus()) as bus:
        gateway = open_gateway(Fence("gateway-1", 1, "benchmark"), settings, registry, bus)
        try:
            GatewayServer(gateway).run([listen(settings.gateway)])
        finally:
            close_gateway(gateway)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

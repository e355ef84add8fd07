"""Real gateways on free ports: in this process, or in processes that tests may kill."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from gateway_client import GatewayClient, eventually

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import GatewaySection, PipelineSection, Settings, StorageSection
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.server import listen, serving
from kopitiam.registry import Fence, open_registry
from waiting import PATIENCE_SECONDS

SCRIPT = Path(__file__).with_name("gateway_process.py")


@dataclass
class Served:
    gateway: Gateway
    client: GatewayClient


@contextmanager
def served(
    home: Path,
    shards: int = 1,
    name: str = "gateway-1",
    *,
    storage: StorageSection = StorageSection(),  # noqa: B008 - frozen
    registry_home: Path | None = None,
    **limits: Any,
) -> Iterator[Served]:
    """Serve a gateway. With `registry_home` it is like a gateway on another machine."""
    section = GatewaySection(listen="127.0.0.1:0", **limits)
    settings = Settings(home=home, gateway=section, pipeline=PipelineSection(shards=shards), storage=storage)
    with closing(open_registry("sqlite", registry_home or home)) as registry, closing(MemoryBus()) as bus:
        gateway = open_gateway(Fence(name, 1, "a life"), settings, registry, bus)
        try:
            port = listen(section)
            with serving(gateway, port):
                url = section.url_at(*port.getsockname())  # it may advertise another one
                yield Served(gateway, GatewayClient(url, home, verify=not section.tls_cert))
        finally:
            close_gateway(gateway)


class GatewayProcess:
    def __init__(self, home: Path, name: str, environment: dict[str, str]) -> None:
        self.log = home.parent / f"{name}.log"
        self.popen = subprocess.Popen(
            [sys.executable, str(SCRIPT), name],
            env=os.environ | {"KOPI_HOME": str(home), "KOPI_GATEWAY__LISTEN": "127.0.0.1:0"} | environment,
            stdout=subprocess.PIPE,
            stderr=self.log.open("ab"),
            text=True,
        )
        self._home = home

    def connect(self, **options: Any) -> GatewayClient:
        """Return a client once the gateway answers."""
        assert self.popen.stdout is not None
        url = self.popen.stdout.readline().strip()
        assert url, self.log.read_text()
        self.client = GatewayClient(url, self._home, **options)
        eventually(self._answers)
        return self.client

    def _answers(self) -> bool:
        try:
            return self.client.http.get("/healthz").status_code == 200
        except httpx.TransportError:
            assert self.popen.poll() is None, self.log.read_text()
            return False

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.popen.pid).children(recursive=True)

    def is_killed(self) -> bool:
        return self.popen.wait(PATIENCE_SECONDS) == -signal.SIGKILL

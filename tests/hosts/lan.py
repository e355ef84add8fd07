"""A bridge with machines on it: their names, the network between them, and how it is cut and slowed down."""

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
from machines import Machine, namespace_of, until

Direction = Literal["both", "in", "out"]
_SSH = """
Host *
  User root
  IdentityFile {keys}/client
  BatchMode yes
  ConnectTimeout 5
  ServerAliveInterval 2
  ServerAliveCountMax 3
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
_OBSERVER = 254  # last number of the address of this process on the bridge
_FORWARDER = Path(__file__).with_name("slow_link.py")
_PASSED_ON = ("PATH", "PYTHONPATH")


@dataclass(frozen=True)
class Slowness:
    """Of a link, in each direction."""

    delay_seconds: float = 0.05
    loss: float = 0.02
    bytes_per_second: int = 1_000_000

    def __str__(self) -> str:
        return (
            f"{1000 * self.delay_seconds:.0f} ms, {100 * self.loss:.0f} % lost, "
            f"{self.bytes_per_second // 1000} kB/s"
        )


class Lan:
    """A bridge with machines. `home` is each machine's own disk, `storage` the mount that they share."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.home, self.storage, self.shared = folder / "home", folder / "storage", folder / "shared"
        self.keys, self.hosts_file = folder / "keys", folder / "hosts"
        own = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self.environment = own | {"HOME": "/root", "LANG": "C.UTF-8"} | environment
        self.machines: dict[str, Machine] = {}
        self._network = _free_network()
        self._bridge: subprocess.Popen[bytes] | None = None
        self._cuts = itertools.count()
        for place in (self.home, self.storage, self.shared, self.keys):
            place.mkdir(parents=True)
        folder.chmod(0o755)

    @property
    def ssh(self) -> str:
        """The command that logs in to another machine."""
        return f"ssh -F {self.folder / 'ssh_config'}"

    def address(self, number: int) -> str:
        return f"{self._network}.{number}"

    def add(self, *names: str, kind: type[Machine] = Machine) -> None:
        """Add machines, which are booted later."""
        for name in names:
            self.machines[name] = kind(self, name, len(self.machines) + 1)
        lines = [f"{machine.address} {machine.name}" for machine in self.machines.values()]
        # Rewritten in place: machines that are on have this file as their /etc/hosts.
        self.hosts_file.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]), encoding="utf-8")

    def start(self) -> None:
        """Make the bridge, and connect this process to it, to observe the machines."""
        self._bridge = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL, start_new_session=True
        )
        pid = self._bridge.pid
        own = namespace_of(os.getpid(), "net")
        until(lambda: namespace_of(pid, "net") != own, "no network namespace")
        self._in_bridge("ip", "link", "add", "br0", "type", "bridge")
        self._in_bridge("ip", "link", "set", "br0", "up")
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "observer", "netns", str(pid))
        self._in_bridge("ip", "link", "set", "observer", "master", "br0", "up")
        _ip("address", "add", f"{self.address(_OBSERVER)}/24", "dev", self._link)
        _ip("link", "set", self._link, "up")
        for name in ("host", "client"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.keys / name)], check=True
            )
        (self.folder / "ssh_config").write_text(_SSH.format(keys=self.keys), encoding="utf-8")
        Path("/run/sshd").mkdir(exist_ok=True)

    def connect(self, pid: int, number: int) -> None:
        """Give the machine of this process its network card. A machine that replaces another has the same
        hardware address."""
        assert self._bridge is not None
        port = f"port{number}"
        self._in_bridge("ip", "link", "delete", port, is_checked=False)  # of a machine that was powered off
        bridge = str(self._bridge.pid)
        _ip("link", "add", port, "netns", bridge, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        enter = ["nsenter", "--target", str(pid), "--net", "--"]
        hardware = f"02:00:00:00:00:{number:02x}"
        for words in (
            ("link", "set", "eth0", "address", hardware),
            ("address", "add", f"{self.address(number)}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            subprocess.run([*enter, "ip", *words], check=True)
        self._in_bridge("ip", "link", "set", port, "master", "br0", "up")

    def close(self) -> None:
        for machine in self.machines.values():
            machine.power_off()
        if self._bridge is not None:
            self._bridge.kill()
            self._bridge.wait(10)
        subprocess.run(["ip", "link", "delete", self._link], capture_output=True, check=False)

    # -- cuts

    @contextlib.contextmanager
    def isolated(self, name: str, direction: Direction = "both") -> Iterator[None]:
        """Cut a machine off from all others: it hears nothing (`in`), is not heard (`out`), or both."""
        others = [machine.address for machine in self.machines.values() if machine.name != name]
        with self._dropping(self.machines[name], others, direction):
            yield

    @contextlib.contextmanager
    def parted(
        self, ours: Iterable[str], theirs: Iterable[str], direction: Direction = "both"
    ) -> Iterator[None]:
        """Cut the network between two groups of machines; `in`: ours do not hear theirs."""
        theirs = [self.machines[name].address for name in theirs]
        with contextlib.ExitStack() as cuts:
            for name in ours:
                cuts.enter_context(self._dropping(self.machines[name], theirs, direction))
            yield

    @contextlib.contextmanager
    def _dropping(self, machine: Machine, addresses: list[str], direction: Direction) -> Iterator[None]:
        table, everyone = f"cut{next(self._cuts)}", ", ".join(addresses)
        chains = {
            "in": f"chain from {{ type filter hook input priority 0; ip saddr {{ {everyone} }} drop; }}",
            "out": f"chain to {{ type filter hook output priority 0; ip daddr {{ {everyone} }} drop; }}",
        }
        cut = [chain for way, chain in chains.items() if direction in ("both", way)]
        enter = machine.command("nft")
        rules = "\n".join([f"table inet {table} {{", *cut, "}", ""])
        subprocess.run([*enter, "-f", "-"], input=rules, text=True, check=True)
        try:
            yield
        finally:
            if machine.is_on:
                subprocess.run([*enter, "delete", "table", "inet", table], check=False)

    @contextlib.contextmanager
    def slowed(self, name: str, slowness: Slowness, seed: int = 1) -> Iterator[None]:
        """Put a slow and lossy link between a machine and the bridge, whatever it is connected to.

        The network card of the machine, and the bridge on its side of the link, must finish their packets
        themselves: the process in between forwards them as they are.
        """
        machine, link = self.machines[name], f"slow{self.machines[name].number}"
        port, end = f"port{machine.number}", f"{link}-end"
        self._in_bridge("ip", "link", "add", link, "type", "veth", "peer", "name", end)
        self._in_bridge("ip", "link", "set", end, "up")
        self._in_bridge("ethtool", "-K", link, "tx", "off")
        machine.run("ethtool", "-K", "eth0", "tx", "off")
        figures = (slowness.delay_seconds, slowness.loss, slowness.bytes_per_second, seed)
        words = [sys.executable, str(_FORWARDER), port, end, *map(str, figures)]
        forwarder = subprocess.Popen(self._entering_bridge(*words), stdout=subprocess.PIPE)
        try:
            assert forwarder.stdout is not None and forwarder.stdout.readline(), "no slow link"
            self._in_bridge("ip", "link", "set", port, "nomaster")
            self._in_bridge("ip", "link", "set", link, "master", "br0", "up")
            yield
        finally:
            forwarder.kill()
            forwarder.communicate()
            self._in_bridge("ip", "link", "delete", link)
            self._in_bridge("ip", "link", "set", port, "master", "br0", is_checked=machine.is_on)
            if machine.is_on:
                machine.run("ethtool", "-K", "eth0", "tx", "on")

    @property
    def _link(self) -> str:
        return f"kopi{self._network.replace('10.', '', 1).replace('.', '-')}"

    def _in_bridge(self, *words: str, is_checked: bool = True) -> None:
        subprocess.run(self._entering_bridge(*words), check=is_checked, capture_output=True)

    def _entering_bridge(self, *words: str) -> list[str]:
        assert self._bridge is not None
        return ["nsenter", "--target", str(self._bridge.pid), "--net", "--", *words]


def _free_network() -> str:
    """The first three numbers of a network that no interface of this machine has, such as 10.201.7."""
    used = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    for number in range(256):
        network = f"10.{200 + (os.getpid() + number) % 50}.{(os.getpid() // 50 + number) % 250}"
        if not any(address.startswith(f"{network}.") for address in used):
            return network
    raise AssertionError("no free network")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)

"""A real fleet on a home and ports of its own: brought up and down by the commands of a person, hurt by
signals, and watched through its registry.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from kopitiam.bus.private_broker import free_port
from kopitiam.client.client import Client
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError, Unavailable
from kopitiam.contracts.messages import NodeKind, NodeRecord
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.lifecycle import open_fleet
from kopitiam.fleet.services import service_settings
from kopitiam.registry.registry import Registry, connect_registry
from kopitiam.system.settings import load_settings
from kopitiam_chaos.strikes import StruckNode, Victims
from processes import restore_sigint

KOPI = Path(sys.executable).with_name("kopi")
BEAT_SECONDS, TIMEOUT_SECONDS = 1, 6
PATIENCE_SECONDS = 120.0
_COMMAND_SECONDS = 420
_LOOK_SECONDS = 0.05
_PR_SET_CHILD_SUBREAPER = 36
_CONFIG = """\
home = "{home}"
[gateway]
listen = "127.0.0.1:{port}"
[monitor]
heartbeat_seconds = {beat}
timeout_seconds = {timeout}
[nodes]
services = {services}
[spark.conf]
"spark.driver.memory" = "1g"
"spark.sql.shuffle.partitions" = "1"
"""
_SHORT_LIVED_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}  # half the time to the first answer


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Whoever loses its parent becomes a child of this process, which then learns how it ends."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@dataclass(frozen=True)
class Return:
    name: str
    pid: int
    detected_seconds: float
    revived_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.name}: found dead after {self.detected_seconds:.1f} s, "
            f"back after {self.revived_seconds:.1f} s"
        )


class Fleet:
    """Its processes are children of whoever runs it within `adopting`."""

    def __init__(self, folder: Path, services: Sequence[str]) -> None:
        self.home = folder / "home"
        self.config = folder / "fleet.toml"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.told: list[str] = []
        self._met: set[int] = set()  # processes that stood for a node
        self._ended: dict[int, int] = {}  # with their exit codes
        self._places = FleetHome(self.home)
        callers = {name: value for name, value in os.environ.items() if not name.startswith("KOPI_")}
        self._environment = callers | _SHORT_LIVED_JAVA
        port = self.url.rpartition(":")[2]
        pace = {"beat": BEAT_SECONDS, "timeout": TIMEOUT_SECONDS}
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            _CONFIG.format(home=self.home, port=port, services=json.dumps(services), **pace)
        )

    # -- what a person does

    def up(self) -> None:
        self.do("cluster", "up")

    def down(self) -> list[str]:
        stopped: list[str] = self.do("cluster", "down")["stopped"]
        return stopped

    def start(self, *names: str) -> None:
        """All at once."""
        commands = [self.start_command("node", "start", name, "--config", str(self.config)) for name in names]
        for command in commands:
            _, words = command.communicate(timeout=_COMMAND_SECONDS)
            assert command.returncode == 0, words

    def do(self, *words: str) -> Any:
        return self.kopi(*words, "--config", str(self.config), "--json")

    def kopi(self, *words: str) -> Any:
        """What a command of the kind that shows JSON says."""
        command = self.start_command(*words)
        shown, complaint = command.communicate(timeout=_COMMAND_SECONDS)
        assert (command.returncode, complaint) == (0, ""), complaint
        return json.loads(shown)

    def submit(self, data: Path, out: Path) -> str:
        """As `kopi submit`, until the answers are there; a gateway that is away is waited for."""
        with Client(self.url, patience_seconds=PATIENCE_SECONDS) as client:
            run = client.submit(data)
            run.wait(PATIENCE_SECONDS)
            run.download(out)
        return run.id

    @contextlib.contextmanager
    def edited(self, *changes: tuple[str, str]) -> Iterator[None]:
        """With this in the place of that in the settings file, as if by a person's editor."""
        before = self.config.read_text()
        after = before
        for this, that in changes:
            assert this in after
            after = after.replace(this, that)
        try:
            self._rewrite(after)
            yield
        finally:
            self._rewrite(before)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> StruckNode:
        """The node's own process only, not its children."""
        assert self.pid_of(name) is not None, f"{name} does not run: {self.story()}"
        loss = self.victims.aim(name, alone=True)
        self.victims.send(loss, number)
        return loss

    # -- how it is

    @cached_property
    def kinds(self) -> dict[str, NodeKind]:
        return load_settings(self.config).nodes.kinds

    @cached_property
    def settings(self) -> Settings:
        """With the addresses of the services, which were started before."""
        return service_settings(load_settings(self.config))

    @cached_property
    def victims(self) -> Victims:
        return Victims(open_fleet(self.config))

    @cached_property
    def registry(self) -> Registry:
        return connect_registry(self.settings.registry.url, self.home)

    def nodes(self) -> dict[str, NodeRecord]:
        """As the registry knows them; none while it is away."""
        try:
            return {node.name: node for node in self.registry.nodes()}
        except Unavailable:
            return {}

    def leaders(self) -> list[str]:
        return [node.name for node in self.nodes().values() if node.leader]

    def pid_of(self, name: str) -> int | None:
        """Of the process that stands for the node now, if it lives; a frozen one lives."""
        pid = self.victims.pid_of(name)
        if pid is not None:
            self._met.add(pid)
        return pid

    def pids(self) -> dict[str, int | None]:
        return {name: self.pid_of(name) for name in self.kinds}

    def processed(self, run: str) -> int:
        """Chunks, as far as the registry can be asked."""
        with contextlib.suppress(Unavailable):
            shards = self.registry.progress(run).values()
            return sum(volume.chunks for by_shard in shards for volume in by_shard.values())
        return 0

    def pids_of(self, name: str) -> set[int]:
        return {process.pid for process in self.victims.processes(name)}

    def log(self, name: str) -> str:
        return self._places.log(name).read_text(encoding="utf-8", errors="replace")

    def processes(self) -> list[psutil.Process]:
        """All that have anything to do with the home, by whatever they say of themselves."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                told = [*process.cmdline(), process.cwd(), *process.environ().values()]
                is_other = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
                if is_other and any(str(self.home) in word for word in told):
                    found.append(process)
        return found

    def is_whole(self) -> bool:
        """Every node lives, and the one leader is the monitor with the highest id."""
        self.pids()  # or new ones would not be met
        return self.leaders() == [self.settings.nodes.monitors[-1]] and not self.victims.unhealthy(
            self.nodes()
        )

    # -- waiting for it

    def wait(self, is_so: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> float:
        """How long it took."""
        begun = time.monotonic()
        while not is_so():
            self._bury()  # or they would stay as zombies
            assert time.monotonic() - begun < seconds, f"not {what} after {seconds:.0f} s: {self.story()}"
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - begun

    def await_whole(self) -> None:
        self.wait(self.is_whole, "whole")

    def await_return(self, loss: StruckNode) -> Return:
        """Of a node that nobody brings back but the monitors."""
        name = loss.name
        self.wait(lambda: self.victims.is_noticed(loss, self.nodes()), f"aware that {name} is dead")
        detected = time.monotonic() - loss.at
        self.wait(lambda: self.victims.is_replaced(loss, self.nodes()), f"reviving {name}")
        new = self.pid_of(name)
        assert new is not None
        back = Return(name, new, detected, time.monotonic() - loss.at)
        self.tell(str(back))
        return back

    def exit_code(self, pid: int, seconds: float) -> int:
        """Of a process that was, or is about to be, no more; negative if a signal ended it."""
        self._met.add(pid)
        self.wait(lambda: pid in self._ended, f"rid of process {pid}", seconds)
        return self._ended[pid]

    def tell(self, words: str) -> None:
        """To whoever runs pytest with -s, and in the message of an assertion that fails later."""
        self.told.append(words)
        sys.stdout.write(f"\n  {words}")

    def story(self) -> str:
        states = {
            node.name: (node.state, node.pid, node.epoch, node.leader) for node in self.nodes().values()
        }
        return f"{states}; {self.pids()}; {'; '.join(self.told)}"

    def end(self) -> None:
        """Whatever is left, without asking."""
        with contextlib.suppress(KopitiamError, AssertionError, subprocess.TimeoutExpired):
            self.down()
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._bury()
        if "registry" in vars(self):
            self.registry.close()

    def start_command(self, *words: str, **settings: str) -> subprocess.Popen[str]:
        """`settings` come above those of the file, as in the environment of a person."""
        return subprocess.Popen(
            [KOPI, *words],
            env=self._environment | settings,
            cwd=self.config.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=restore_sigint,  # noqa: PLW1509
        )

    def _rewrite(self, text: str) -> None:
        beside = self.config.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.config)  # half of it would be other settings
        for known in ("kinds", "settings", "victims"):
            vars(self).pop(known, None)

    def _bury(self) -> None:
        for pid in self._met - self._ended.keys():
            with contextlib.suppress(ChildProcessError):  # not an orphan yet
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self._ended[pid] = os.waitstatus_to_exitcode(status)

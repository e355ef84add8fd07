"""A real fleet with its own home and ports: started and stopped by `kopi` commands, struck by signals, and
observed through its registry.
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
PATIENCE_SECONDS = 240.0
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
_SHORT_LIVED = {  # half the time to the first answer
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    "KOPI_PIPELINE__WARM_UP": "false",
}


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Make this process the parent of orphaned descendants, so that it gets their exit codes."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@dataclass(frozen=True)
class Recovery:
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
    """Within `adopting`, its processes are children of the caller."""

    def __init__(self, folder: Path, services: Sequence[str]) -> None:
        self.home = folder / "home"
        self.config = folder / "fleet.toml"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.notes: list[str] = []
        self._met: set[int] = set()  # processes of nodes, past and present
        self._ended: dict[int, int] = {}  # with their exit codes
        self._places = FleetHome(self.home)
        callers = {name: value for name, value in os.environ.items() if not name.startswith("KOPI_")}
        self._environment = callers | _SHORT_LIVED
        port = self.url.rpartition(":")[2]
        pace = {"beat": BEAT_SECONDS, "timeout": TIMEOUT_SECONDS}
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            _CONFIG.format(home=self.home, port=port, services=json.dumps(services), **pace)
        )

    # -- commands

    def up(self) -> None:
        self.do("cluster", "up")

    def down(self) -> list[str]:
        stopped: list[str] = self.do("cluster", "down")["stopped"]
        return stopped

    def start(self, *names: str) -> None:
        """Start the nodes concurrently."""
        commands = [self.start_command("node", "start", name, "--config", str(self.config)) for name in names]
        for command in commands:
            _, errors = command.communicate(timeout=_COMMAND_SECONDS)
            assert command.returncode == 0, errors

    def do(self, *arguments: str) -> Any:
        return self.kopi(*arguments, "--config", str(self.config), "--json")

    def kopi(self, *arguments: str) -> Any:
        """Run a command that prints JSON, and return it parsed."""
        command = self.start_command(*arguments)
        shown, complaint = command.communicate(timeout=_COMMAND_SECONDS)
        assert (command.returncode, complaint) == (0, ""), complaint
        return json.loads(shown)

    def submit(self, data: Path, out: Path) -> str:
        """Upload a run, wait for its answers and download them, with retries while the gateway is down."""
        with Client(self.url, patience_seconds=PATIENCE_SECONDS) as client:
            run = client.submit(data)
            run.wait(PATIENCE_SECONDS)
            run.download(out)
        return run.id

    @contextlib.contextmanager
    def edited(self, *changes: tuple[str, str]) -> Iterator[None]:
        """Replace texts in the settings file while the block lasts."""
        before = self.config.read_text()
        after = before
        for old, new in changes:
            assert old in after
            after = after.replace(old, new)
        try:
            self._rewrite(after)
            yield
        finally:
            self._rewrite(before)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> StruckNode:
        """Send a signal to the node's own process only, not to its children."""
        assert self.pid_of(name) is not None, f"{name} does not run: {self.status_text()}"
        struck = self.victims.aim(name, alone=True)
        self.victims.send(struck, number)
        return struck

    # -- state

    @cached_property
    def kinds(self) -> dict[str, NodeKind]:
        return load_settings(self.config).nodes.kinds

    @cached_property
    def settings(self) -> Settings:
        """The settings with the addresses of the services, which must have been started."""
        return service_settings(load_settings(self.config))

    @cached_property
    def victims(self) -> Victims:
        return Victims(open_fleet(self.config))

    @cached_property
    def registry(self) -> Registry:
        return connect_registry(self.settings.registry.url, self.home)

    def nodes(self) -> dict[str, NodeRecord]:
        """The node records of the registry; none while it is unavailable."""
        try:
            return {node.name: node for node in self.registry.nodes()}
        except Unavailable:
            return {}

    def leaders(self) -> list[str]:
        return [node.name for node in self.nodes().values() if node.leader]

    def pid_of(self, name: str) -> int | None:
        """The pid of the node's current process if it runs, even if it is frozen."""
        pid = self.victims.pid_of(name)
        if pid is not None:
            self._met.add(pid)
        return pid

    def pids(self) -> dict[str, int | None]:
        return {name: self.pid_of(name) for name in self.kinds}

    def processed(self, run: str) -> int:
        """Processed chunks of the run; 0 while the registry is unavailable."""
        with contextlib.suppress(Unavailable):
            shards = self.registry.progress(run).values()
            return sum(volume.chunks for by_shard in shards for volume in by_shard.values())
        return 0

    def pids_of(self, name: str) -> set[int]:
        return {process.pid for process in self.victims.processes(name)}

    def log(self, name: str) -> str:
        return self._places.log(name).read_text(encoding="utf-8", errors="replace")

    def processes(self) -> list[psutil.Process]:
        """All processes with the home in their arguments, working folder or environment."""
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                texts = [*process.cmdline(), process.cwd(), *process.environ().values()]
                is_other = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
                if is_other and any(str(self.home) in text for text in texts):
                    processes.append(process)
        return processes

    def is_whole(self) -> bool:
        """Whether all nodes are alive and the monitor with the highest id is the only leader."""
        self.pids()  # records new processes
        return self.leaders() == [self.settings.nodes.monitors[-1]] and not self.victims.unhealthy(
            self.nodes()
        )

    # -- waiting

    def wait(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until the condition holds; returns the seconds. `what` completes the error "not …"."""
        begun = time.monotonic()
        while not condition():
            self._reap()  # or they would stay as zombies
            assert time.monotonic() - begun < seconds, (
                f"not {what} after {seconds:.0f} s: {self.status_text()}"
            )
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - begun

    def await_whole(self) -> None:
        self.wait(self.is_whole, "whole")

    def await_recovery(self, struck: StruckNode) -> Recovery:
        """Wait until the monitors have noticed and replaced the struck node."""
        name = struck.name
        self.wait(lambda: self.victims.is_noticed(struck, self.nodes()), f"aware that {name} is dead")
        detected = time.monotonic() - struck.at
        self.wait(lambda: self.victims.is_replaced(struck, self.nodes()), f"reviving {name}")
        new = self.pid_of(name)
        assert new is not None
        recovery = Recovery(name, new, detected, time.monotonic() - struck.at)
        self.note(str(recovery))
        return recovery

    def exit_code(self, pid: int, seconds: float) -> int:
        """Wait for the end of a process and return its exit code; negative if a signal ended it."""
        self._met.add(pid)
        self.wait(lambda: pid in self._ended, f"rid of process {pid}", seconds)
        return self._ended[pid]

    def note(self, text: str) -> None:
        """Print a line for pytest -s, and keep it for the messages of later assertions."""
        self.notes.append(text)
        sys.stdout.write(f"\n  {text}")

    def status_text(self) -> str:
        states = {
            node.name: (node.state, node.pid, node.epoch, node.leader) for node in self.nodes().values()
        }
        return f"{states}; {self.pids()}; {'; '.join(self.notes)}"

    def end(self) -> None:
        """Stop the fleet and kill its remaining processes."""
        with contextlib.suppress(KopitiamError, AssertionError, subprocess.TimeoutExpired):
            self.down()
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._reap()
        if "registry" in vars(self):
            self.registry.close()

    def start_command(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        """Start `kopi` with `settings` as environment variables, which override the file."""
        return subprocess.Popen(
            [KOPI, *arguments],
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
        beside.replace(self.config)  # atomically: nodes may read it at any time
        for known in ("kinds", "settings", "victims"):
            vars(self).pop(known, None)

    def _reap(self) -> None:
        for pid in self._met - self._ended.keys():
            with contextlib.suppress(ChildProcessError):  # not an orphan yet
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self._ended[pid] = os.waitstatus_to_exitcode(status)

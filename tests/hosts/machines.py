"""Machines made of network, PID, mount and host-name namespaces, on a bridge of their own.

Each machine has its own address, host name, `/etc/hosts`, disk, processes and, where asked, clock. Shared
storage is a mount. Machines reach each other by name and by `ssh`, and can be cut off, powered off and
replaced. Root is needed.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from debian import can_install, install, skip_or_fail

if TYPE_CHECKING:
    from lan import Lan

T = TypeVar("T")
COMMAND_SECONDS = 600.0
UNSHARE = ("unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child")
_PROGRAMS = {
    "ethtool": "ethtool",
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
}
_INIT = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
while True:
    try:
        os.wait()  # the processes whose parents have ended
    except ChildProcessError:
        time.sleep(0.05)
"""
_MOUNTS = """
set -e
hostname {name}
mount --make-rprivate /
mount -t proc proc /proc
mount --bind {disk} {home}
mount --bind {hosts} /etc/hosts
exec {python} -c "$KOPI_TEST_INIT"
"""
SSHD = """
ListenAddress {address}
HostKey {key}
AuthorizedKeysFile {clients}
StrictModes no
UsePAM no
PidFile none
PrintMotd no
MaxStartups 100
"""
_CLONE_NEWNET = 0x40000000


def require_machines() -> None:
    """Skip the test where machines cannot be made; in CI, fail it."""
    if os.geteuid() != 0:
        skip_or_fail("machines are made of namespaces, which needs root")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        missing = [package for program, package in _PROGRAMS.items() if program_path(program) is None]
        if missing and can_install():
            install(*missing, is_there=lambda: all(map(program_path, _PROGRAMS)))
    if missing := [program for program in _PROGRAMS if program_path(program) is None]:
        skip_or_fail(f"not installed: {', '.join(missing)}")
    trial = subprocess.run(
        ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "true"], capture_output=True, check=False
    )
    if trial.returncode:
        skip_or_fail(f"no namespaces: {trial.stderr.decode().strip()}")


@dataclass
class Machine:
    """One machine, on or off. Its disk outlives it unless it is lost."""

    lan: "Lan"
    name: str
    number: int
    environment: dict[str, str] = field(default_factory=dict)  # of every command on it
    has_storage: bool = True
    at_boot: Callable[[], object] = lambda: None  # starts its programs, if it is no machine of the fleet
    _shell: subprocess.Popen[bytes] | None = None
    _pid: int = 0
    _known_namespace: str = ""

    @property
    def address(self) -> str:
        return self.lan.address(self.number)

    @property
    def disk(self) -> Path:
        return self.lan.folder / "disks" / self.name

    @property
    def is_on(self) -> bool:
        return self._shell is not None and self._shell.poll() is None

    def boot(self) -> None:
        """Start an empty machine on its disk, connect it to the bridge, and let others log in."""
        self.disk.mkdir(parents=True, exist_ok=True)
        self._shell = subprocess.Popen(
            self._boot_command(),
            env=os.environ | {"KOPI_TEST_INIT": _INIT},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # at the power-off, unshare complains about a signal
        )
        self._pid = _first_child(self._shell)
        until(self._is_booted, f"{self.name} does not boot")
        self.lan.connect(self._pid, self.number)
        if self.has_storage:
            self.mount_storage()
        self.run("ip", "link", "set", "lo", "up")
        self._start_sshd()
        self.at_boot()

    def _boot_command(self) -> list[str]:
        lan = self.lan
        script = _MOUNTS.format(
            name=self.name, disk=self.disk, home=lan.home, hosts=lan.hosts_file, python=sys.executable
        )
        return [*UNSHARE, "sh", "-c", script]

    def _is_booted(self) -> bool:
        with contextlib.suppress(psutil.Error):
            return _INIT in psutil.Process(self._pid).cmdline()
        return False

    def mount_storage(self) -> None:
        self.run("mount", "--bind", str(self.lan.shared), str(self.lan.storage))

    def unmount_storage(self) -> None:
        self.run("umount", "--lazy", str(self.lan.storage))

    def power_off(self) -> None:
        """End all its processes at once, without a word to the others."""
        if self._shell is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._shell.wait(10)
        until(lambda: not self.processes(), f"{self.name} still runs")
        self._shell = None

    def lose_disk(self) -> None:
        shutil.rmtree(self.disk, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """All its processes, as this machine sees them."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                namespace = namespace_of(process.pid, "uts")
                if namespace == self._namespace and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def command(self, *words: str) -> list[str]:
        return ["nsenter", "--target", str(self._pid), "--net", "--pid", "--mount", "--uts", "--", *words]

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command on the machine, as from its console."""
        return subprocess.Popen(
            self.command(*words),
            env=self.lan.environment | self.environment | environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def inside(self, work: Callable[[], T]) -> "Future[T]":
        """Run `work` on a thread of this process in the network of the machine; so are the threads that it
        starts. Other machines have no names there, only addresses."""
        outcome: Future[T] = Future()

        def enter_and_work() -> None:
            try:
                with Path(f"/proc/{self._pid}/ns/net").open() as namespace:
                    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=enter_and_work, name=f"inside {self.name}", daemon=True).start()
        return outcome

    def run(
        self, *words: str, seconds: float = COMMAND_SECONDS, is_checked: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        with self.start(*words, **environment) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert not (is_checked and process.returncode), f"{self.name}: {' '.join(words)}: {errors}{output}"
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def _start_sshd(self) -> None:
        settings = self.lan.environment | self.environment
        config = self.disk / "sshd_config"
        keys = self.lan.keys
        text = SSHD.format(address=self.address, key=keys / "host", clients=keys / "client.pub")
        variables = " ".join(f'{name}="{value}"' for name, value in settings.items())
        config.write_text(f"{text}SetEnv {variables}\n", encoding="utf-8")
        self.run(str(program_path("sshd")), "-f", str(self.lan.home / config.name))

    @property
    def _namespace(self) -> str:
        with contextlib.suppress(OSError):
            self._known_namespace = namespace_of(self._pid, "uts")
        return self._known_namespace


def shift_of(seconds: int) -> bytes:
    """The content of the file that the clock of a machine with the shim follows."""
    return struct.pack("l", seconds)


def namespace_of(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def _first_child(process: subprocess.Popen[bytes]) -> int:
    children: list[psutil.Process] = []

    def has_child() -> bool:
        children[:] = psutil.Process(process.pid).children()
        return bool(children)

    until(has_child, "unshare starts nothing")
    return children[0].pid


def until(condition: Callable[[], object], complaint: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.01)


def program_path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")

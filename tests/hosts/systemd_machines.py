"""Machines whose first process is systemd. It knows the units of this module and of deploy/, and no others:
those of the machine that runs the tests would empty its /tmp.

Each machine has its own /etc, /var/lib, /opt, /run and /tmp, and the storage in /mnt/kopitiam.
"""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

from machines import SSHD, UNSHARE, Machine, program_path

from debian import can_install, install, skip_or_fail

DEPLOY = Path(__file__).parents[2] / "deploy" / "systemd"
USER = "kopitiam"
USER_ID = 10001
_SYSTEMD = Path("/usr/lib/systemd/systemd")
_TARGETS = ("sysinit", "basic", "multi-user", "network-online", "shutdown")
_CLIENT_KEY = "/etc/kopitiam/ssh_key"
_MOUNTS = """
set -e
hostname {name}
mount --make-rprivate /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind {disk}/console /dev/console
mount -t overlay -o lowerdir=/etc,upperdir={disk}/etc,workdir={disk}/etc-work overlay /etc
mount -t overlay -o lowerdir=/var/lib,upperdir={disk}/lib,workdir={disk}/lib-work overlay /var/lib
mount --bind {hosts} /etc/hosts
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /opt
mount -t tmpfs tmpfs /mnt
mkdir -p /run/sshd /mnt/kopitiam
ln -s {prefix} /opt/kopitiam
mount --bind {shared} /mnt/kopitiam
mount -t tmpfs -o mode=1777 tmpfs /tmp
exec env container=namespaces SYSTEMD_UNIT_PATH=/etc/kopitiam-units SYSTEMD_GENERATOR_PATH=/nonexistent \
    SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/nonexistent {systemd} --unit=basic.target --log-target=console
"""
# Python may be in the home of root here, which the unit hides; there is no journal.
_DROP_IN = """
[Service]
ProtectHome=tmpfs
BindReadOnlyPaths={python}
Environment=PYTHONPATH={path} JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1
StandardOutput=append:/var/lib/kopitiam-logs/%i.log
StandardError=append:/var/lib/kopitiam-logs/%i.log
"""


def require_systemd() -> None:
    """Skip the test where systemd cannot be the first process of a machine; in CI, fail it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if not _SYSTEMD.exists() and can_install():
            install("systemd", is_there=_SYSTEMD.exists)
    if not _SYSTEMD.exists():
        skip_or_fail("systemd is not installed")
    if _cgroups() is None:
        skip_or_fail("cgroup2 is not mounted")


def _cgroups() -> Path | None:
    mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    return next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)


class SystemdMachine(Machine):
    """`files` are contents of files below /etc, such as kopitiam/kopitiam.toml; `storage` is mounted."""

    files: dict[str, str]
    storage: Path

    def boot(self) -> None:
        for name in ("etc", "etc-work", "lib", "lib-work", "lib/kopitiam-logs"):
            (self.disk / name).mkdir(parents=True, exist_ok=True)
        (self.disk / "console").touch()
        etc = self.disk / "etc"
        for name, content in (self._system_files() | self.files).items():
            (etc / name).parent.mkdir(parents=True, exist_ok=True)
            (etc / name).write_text(content, encoding="utf-8")
        key = etc / _CLIENT_KEY.removeprefix("/etc/")
        shutil.copy(self.lan.keys / "client", key)
        shutil.chown(key, USER_ID, USER_ID)
        key.chmod(0o600)
        self._cgroup.mkdir(exist_ok=True)
        super().boot()

    def power_off(self) -> None:
        super().power_off()
        if self._cgroup.is_dir():
            for folder in sorted(self._cgroup.rglob("*/"), reverse=True):
                folder.rmdir()
            self._cgroup.rmdir()

    def systemctl(self, *words: str, is_checked: bool = True) -> str:
        return self.run("systemctl", *words, is_checked=is_checked).stdout

    def log(self, node: str) -> str:
        file = self.disk / "lib" / "kopitiam-logs" / f"{node}.log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def mount_storage(self) -> None:
        """It is mounted at the boot."""

    def _system_files(self) -> dict[str, str]:
        user = f"{USER}:x:{USER_ID}:{USER_ID}::/var/lib/kopitiam:/bin/sh\n"
        units = {f"kopitiam-units/{name}.target": "[Unit]\n" for name in _TARGETS}
        drop_in = _DROP_IN.format(python=sys.base_prefix, path=self.lan.environment.get("PYTHONPATH", ""))
        ssh = (self.lan.folder / "ssh_config").read_text(encoding="utf-8")
        return units | {
            "hostname": f"{self.name}\n",
            "passwd": Path("/etc/passwd").read_text(encoding="utf-8") + user,
            "group": Path("/etc/group").read_text(encoding="utf-8") + f"{USER}:x:{USER_ID}:\n",
            "ssh/ssh_config": ssh.replace(str(self.lan.keys / "client"), _CLIENT_KEY),
            "ssh/authorized": (self.lan.keys / "client.pub").read_text(encoding="utf-8"),
            "kopitiam-units/kopi@.service": (DEPLOY / "kopi@.service").read_text(encoding="utf-8"),
            "kopitiam-units/kopi@.service.d/test.conf": drop_in,
        }

    def _boot_command(self) -> list[str]:
        lan = self.lan
        script = _MOUNTS.format(
            name=self.name,
            disk=self.disk,
            hosts=lan.hosts_file,
            shared=self.storage,
            prefix=sys.prefix,
            systemd=_SYSTEMD,
        )
        enter = f'echo $$ > {self._cgroup}/cgroup.procs; exec "$@"'
        return ["sh", "-c", enter, "sh", *UNSHARE, "--cgroup", "--ipc", "sh", "-c", script]

    def _is_booted(self) -> bool:
        state = subprocess.run(
            self.command("systemctl", "is-system-running"), capture_output=True, text=True, check=False
        )
        return state.stdout.strip() in ("running", "degraded")

    def _start_sshd(self) -> None:
        shutil.copy(self.lan.keys / "host", self.disk / "etc" / "ssh" / "kopitiam_key")
        text = SSHD.format(address=self.address, key="/etc/ssh/kopitiam_key", clients="/etc/ssh/authorized")
        (self.disk / "etc" / "ssh" / "kopitiam_sshd").write_text(text, encoding="utf-8")
        self.run(str(program_path("sshd")), "-f", "/etc/ssh/kopitiam_sshd")

    @property
    def _cgroup(self) -> Path:
        top = _cgroups()
        assert top is not None
        return top / f"kopitiam-{self.address}"

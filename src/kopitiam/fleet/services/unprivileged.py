"""Who runs a server that refuses to run as root: ourselves, or if we are root, a user without rights."""

import contextlib
import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from kopitiam.contracts.errors import ConfigError

_CANDIDATES = ("postgres", "nobody")
_PASS_CLOSED_FOLDERS = ("dac_read_search", "dac_override")  # containers may have the second only
_CAPABILITY_BITS = {"dac_override": 1, "dac_read_search": 2}


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    @property
    def is_ourselves(self) -> bool:
        return self.uid == os.geteuid()

    def own(self, path: Path) -> None:
        if not self.is_ourselves:
            os.chown(path, self.uid, self.gid)

    def command(self, command: tuple[str, ...], needed: tuple[Path, ...]) -> tuple[str, ...]:
        """The command as this user, who is let through the closed folders above `needed`, if there are any:
        better than opening, say, root's own home to everybody."""
        if self.is_ourselves:
            return command
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise ConfigError(
                "postgresql: refuses to run as root, and there is no setpriv to change the user"
            )
        become = [setpriv, f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        closed = [folder for path in needed for folder in path.resolve().parents if not self._passes(folder)]
        if closed:
            right = _right_to_pass(closed[0])
            become += [f"--inh-caps=+{right}", f"--ambient-caps=+{right}"]
        return (*become, "--", *command)

    def _passes(self, folder: Path) -> bool:
        found = folder.stat()
        is_own = found.st_uid == self.uid and found.st_mode & stat.S_IXUSR
        return bool(is_own or found.st_mode & stat.S_IXOTH)


def account_for(data: Path) -> Account:
    """Whoever has the data already; else this user, or one without rights if this is root."""
    if data.exists():
        found = data.stat()
        return Account(found.st_uid, found.st_gid)
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    for name in _CANDIDATES:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise ConfigError("postgresql: refuses to run as root, and there is no user postgres or nobody")


def _right_to_pass(closed: Path) -> str:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    rights = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    for name in _PASS_CLOSED_FOLDERS:
        if rights & 1 << _CAPABILITY_BITS[name]:
            return name
    raise ConfigError(f"postgresql: refuses to run as root, and {closed} is closed to others")

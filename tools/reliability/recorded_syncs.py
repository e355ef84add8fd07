"""Rebuilds a folder as it was on disk at some moment, from the log that `record_syncs.c` writes.

Only synced bytes survive, under names whose folder was synced. Real disks lose less.
"""

import random
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Event:
    """A line of the log: `F` bytes or `D` names are durable, or `A`: an acknowledgement goes out."""

    kind: str
    inode: int = 0
    copy: str = ""


class Disk:
    """The state of the disk at any moment of a recording."""

    def __init__(self, recorded: Path, root: int) -> None:
        self._recorded, self._root = recorded, root
        self.events = [_event(line) for line in (recorded / "log").read_text().splitlines()]

    def acknowledgements(self) -> list[int]:
        """Positions in the log just before a client got 201."""
        return [position for position, event in enumerate(self.events) if event.kind == "A"]

    def rebuild(self, moment: int, home: Path, torn: random.Random | None = None) -> None:
        """Writes the home as it was on disk just before event `moment`.

        With `torn`, a random part of the sync that was in progress has reached the disk.
        """
        files: dict[int, bytes] = {}
        folders: dict[int, list[tuple[int, str, str]]] = {}
        for event in self.events[:moment]:
            self._apply(event, files, folders)
        following = self.events[moment] if moment < len(self.events) else None
        if torn is not None and following is not None and following.kind == "F":
            old, new = files.get(following.inode, b""), (self._recorded / following.copy).read_bytes()
            cut = torn.randrange(len(new) + 1)
            files[following.inode] = new[:cut] + old[cut:]
        self._write(self._root, home, files, folders)

    def _apply(
        self, event: Event, files: dict[int, bytes], folders: dict[int, list[tuple[int, str, str]]]
    ) -> None:
        if event.kind == "F":
            files[event.inode] = (self._recorded / event.copy).read_bytes()
        elif event.kind == "D":
            lines = (self._recorded / event.copy).read_text().splitlines()
            entries = (line.split(" ", 2) for line in lines)
            folders[event.inode] = [(int(inode), kind, name) for inode, kind, name in entries]

    def _write(
        self,
        inode: int,
        place: Path,
        files: dict[int, bytes],
        folders: dict[int, list[tuple[int, str, str]]],
    ) -> None:
        place.mkdir(parents=True, exist_ok=True)
        for child, kind, name in folders.get(inode, []):
            if kind == "d":
                self._write(child, place / name, files, folders)
            else:
                (place / name).write_bytes(files.get(child, b""))


def _event(line: str) -> Event:
    kind, *rest = line.split(" ")
    return Event(kind, int(rest[0]), rest[1]) if rest else Event(kind)

"""Checks that home, storage and registry belong together.

Files that the registry does not know are removed as orphans. So a registry that is new, another one, or
restored from an old backup must not be used with existing files until an operator runs `kopi adopt`.

Home and storage carry a copy of the registry's identity, whose mark grows all the time: a copy with a larger
mark than the registry's shows that the registry is older than the files.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.contracts.errors import RegistryRefused
from kopitiam.contracts.layout import MARK_FILE, Identity
from kopitiam.landing.tidying import owners_at_rest
from kopitiam.storage.local import LocalStorage
from kopitiam.storage.port import Key, StoragePort

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_KEY = Key(MARK_FILE)
_ADOPT = "or, if it is meant to be so, stop every node and run kopi adopt"
_TRIES, _PAUSE_SECONDS = 3, 0.3  # on HDFS the file is missing for a moment while it is replaced


@dataclass(frozen=True)
class Premises:
    """The places that hold a registry's files. A monitor has no storage: only its home is checked."""

    home: Path
    storage: StoragePort | None
    storage_url: str = "file"

    def require(self, registry: "Registry") -> Identity:
        """Return the registry's identity. Raises `RegistryRefused`, with a remedy, if a place does not fit.

        Other nodes may start and advance the mark meanwhile, in the registry first: so the stored marks are
        read before the registry's. Only a first mark is stored before the registry has it: so a missing one
        is read again afterwards.
        """
        marks = self.marks()
        identity = registry.identity()
        for name, stored in marks.items():
            if stored is not None:
                _require_current(identity, stored, name)
        *_, (place, name) = self._places()  # the last of them is storage, if there is one
        if self.storage is not None and marks[name] is None:
            if stored := read_mark(place, is_expected=identity.mark > 0):
                _require_same(identity, stored, name)
            else:
                _require_unused(identity, place, name)
        return identity

    def recognize(self, registry: "Registry") -> None:
        """Check, and advance the mark, in the registry first. Called at the start and at intervals."""
        identity = self.require(registry)
        if self.storage is not None:
            self._write(identity)  # so that a registry with a mark has storage that carries one
            self._write(registry.advance_mark())

    def adopt(self, registry: "Registry") -> Identity:
        """Make this the registry of home and storage, whatever marks they carry."""
        stored = [mark for place, _ in self._places() if (mark := read_mark(place))]
        identity = registry.advance_mark(max((mark.mark for mark in stored), default=0))
        for place, _ in self._places():
            write_mark(place, identity)
        return identity

    def marks(self) -> dict[str, Identity | None]:
        """Return the identity that each place carries."""
        return {name: read_mark(place) for place, name in self._places()}

    def _places(self) -> Iterator[tuple[StoragePort, str]]:
        yield LocalStorage(self.home), f"home {self.home}"
        if self.storage is not None and self.storage_url != "file":
            yield self.storage, f"storage.url {self.storage_url}"

    def _write(self, identity: Identity) -> None:
        for place, _ in self._places():
            stored = read_mark(place)
            if stored is None or stored.mark < identity.mark:
                write_mark(place, identity)


def _require_unused(identity: Identity, storage: StoragePort, name: str) -> None:
    if identity.mark > 0:
        raise RegistryRefused(
            f"{name}: does not carry the mark of the registry, which has been used with another place: "
            f"mount it, or put registry.url and storage.url right; {_ADOPT}"
        )
    if not identity.is_used and owners_at_rest(storage):
        raise RegistryRefused(
            f"{name}: there are runs, but the registry is new and has none of them: put the registry "
            f"back, or put registry.url right; {_ADOPT}"
        )


def _require_same(identity: Identity, stored: Identity, name: str) -> None:
    if stored.id != identity.id:
        flaw = "belongs to another registry" + ("" if identity.is_used else ", and this one is new")
        raise RegistryRefused(f"{name}: {flaw}: put the registry back, or put registry.url right; {_ADOPT}")


def _require_current(identity: Identity, stored: Identity, name: str) -> None:
    _require_same(identity, stored, name)
    if stored.mark > identity.mark:
        raise RegistryRefused(
            f"{name}: the registry is older than the files there (mark {identity.mark} of {stored.mark}), as "
            f"after a restore from an old backup: restore the newest one; {_ADOPT}"
        )


def read_mark(place: StoragePort, is_expected: bool = False) -> Identity | None:
    """Return the identity that a place carries; None if there is none, after retries if one `is_expected`."""
    tries = _TRIES if is_expected and place.is_shared else 1
    for attempt in range(tries):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        try:
            with place.open(_KEY) as file:
                content = json.loads(file.read())
            return Identity(str(content["registry"]), int(content["mark"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            raise RegistryRefused(f"{place.url(_KEY)}: cannot be parsed; {_ADOPT}") from None
    return None


def write_mark(place: StoragePort, identity: Identity) -> None:
    content = json.dumps({"registry": identity.id, "mark": identity.mark})
    place.replace(_KEY, content.encode() + b"\n")

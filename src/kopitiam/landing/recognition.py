"""Whether home, storage and registry belong together.

Files that the registry does not know are removed. So a registry that is empty, another's, or of some time ago
must not be used with them, unless somebody says so.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kopitiam.contracts.errors import RegistryRefused
from kopitiam.contracts.identity import MARK_FILE, Identity
from kopitiam.landing.tidying import runs_at_rest
from kopitiam.storage.local import LocalStorage
from kopitiam.storage.port import Key, StoragePort

_KEY = Key(MARK_FILE)
_ADOPT = "or, if it is meant to be so, stop every node and run kopi adopt"
_TRIES, _PAUSE_SECONDS = 3, 0.3  # HDFS has no file there for a moment while it is replaced


class KnowsItself(Protocol):
    def identity(self) -> Identity: ...

    def advance(self, beyond: int = 0) -> Identity: ...


@dataclass(frozen=True)
class Premises:
    """Where a registry's files are. Without storage, as for a monitor, only the home is looked at."""

    home: Path
    storage: StoragePort | None
    storage_url: str = "file"

    def require(self, registry: KnowsItself) -> Identity:
        """`RegistryRefused` says what does not fit, and what to do.

        Others start and move the mark on meanwhile, in the registry first: so what is stored is read before
        the registry. Only a first mark is stored before the registry has it: so one that is missing is looked
        for again afterwards.
        """
        carried = self.carried()
        found = registry.identity()
        for name, stored in carried.items():
            if stored is not None:
                _compare(found, stored, name)
        *_, (place, name) = self._places()  # the last of them is storage, if there is one
        if self.storage is not None and carried[name] is None:
            if stored := read_mark(place, is_expected=found.mark > 0):
                _want_same(found, stored, name)
            else:
                _require_fresh(found, place, name)
        return found

    def recognize(self, registry: KnowsItself) -> None:
        """At a start, and then from time to time: the mark goes on, in the registry first."""
        found = self.require(registry)
        if self.storage is not None:
            self._write(found)  # so that a registry with a mark has storage that carries one
            self._write(registry.advance())

    def adopt(self, registry: KnowsItself) -> Identity:
        """This registry counts from now on, whatever home and storage carry."""
        stored = [mark for place, _ in self._places() if (mark := read_mark(place))]
        found = registry.advance(max((mark.mark for mark in stored), default=0))
        for place, _ in self._places():
            write_mark(place, found)
        return found

    def carried(self) -> dict[str, Identity | None]:
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


def _require_fresh(found: Identity, storage: StoragePort, name: str) -> None:
    if found.mark > 0:
        raise RegistryRefused(
            f"{name}: does not carry the mark of the registry, which has been used with another place: "
            f"mount it, or put registry.url and storage.url right; {_ADOPT}"
        )
    if not found.is_used and runs_at_rest(storage):
        raise RegistryRefused(
            f"{name}: there are runs, and the registry is new and knows none of them: put the registry "
            f"back, or put registry.url right; {_ADOPT}"
        )


def _want_same(found: Identity, stored: Identity, name: str) -> None:
    if stored.id != found.id:
        what = "belongs to another registry" + ("" if found.is_used else ", and this one is new")
        raise RegistryRefused(f"{name}: {what}: put the registry back, or put registry.url right; {_ADOPT}")


def _compare(found: Identity, stored: Identity, name: str) -> None:
    _want_same(found, stored, name)
    if stored.mark > found.mark:
        raise RegistryRefused(
            f"{name}: the registry is older than what is there (mark {found.mark} of {stored.mark}), as one "
            f"from a back-up is: put the newest one back; {_ADOPT}"
        )


def read_mark(place: StoragePort, is_expected: bool = False) -> Identity | None:
    tries = _TRIES if is_expected and place.is_shared else 1
    for attempt in range(tries):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        try:
            with place.open(_KEY) as file:
                said = json.loads(file.read())
            return Identity(str(said["registry"]), int(said["mark"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            raise RegistryRefused(f"{place.url(_KEY)}: cannot be understood; {_ADOPT}") from None
    return None


def write_mark(place: StoragePort, identity: Identity) -> None:
    said = json.dumps({"registry": identity.id, "mark": identity.mark})
    place.replace(_KEY, said.encode() + b"\n")

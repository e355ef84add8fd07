"""Checks that storage works before anything depends on it."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future

from kopitiam.contracts.errors import Unavailable, UserError
from kopitiam.storage.port import Key, StoragePort

CHECK_SECONDS = 8.0
_CONTENT = b"kopitiam was here\n"


def probe(storage: StoragePort) -> None:
    """Write, read back and delete a small file. Raises `Unavailable`."""
    key = Key(f".probe-{uuid.uuid4().hex}")

    def read_back() -> None:
        with storage.open(key) as file:
            if file.read() != _CONTENT:
                raise OSError("the bytes read differ from those written")

    def delete() -> None:
        storage.remove(key)
        if storage.find(str(key)):
            raise OSError("it still exists")

    _step("reached", lambda: storage.find(str(key)))  # an unreachable store fails at the first step
    _step("written", lambda: storage.replace(key, _CONTENT))
    try:
        _step("read", read_back)
    finally:
        _step("deleted", delete)


def checked(open_it: Callable[[], StoragePort], url: str, seconds: float = CHECK_SECONDS) -> StoragePort:
    """Open and probe storage within a deadline, whatever the store or network does. Raises `Unavailable`."""
    opening: Future[StoragePort] = Future()

    def attempt() -> None:
        try:
            storage = open_it()
            storage.check()
            opening.set_result(storage)
        except Exception as error:
            opening.set_exception(error)

    # A daemon thread: a store that never answers must not keep the process alive.
    threading.Thread(target=attempt, name="storage-check", daemon=True).start()
    try:
        return opening.result(seconds)
    except TimeoutError:
        raise Unavailable(f"storage.url {url}: cannot be reached: no answer within {seconds:g} s") from None
    except UserError:
        raise
    except Unavailable as error:
        raise Unavailable(f"storage.url {url}: {error}") from error
    except OSError as error:
        raise Unavailable(f"storage.url {url}: cannot be reached: {_first_line(error)}") from error


def _step(what: str, act: Callable[[], object]) -> None:
    try:
        act()
    except (OSError, Unavailable) as error:
        raise Unavailable(f"cannot be {what}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return reason.removeprefix("storage: ").partition("\n")[0]

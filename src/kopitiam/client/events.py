"""A run as it changes: the gateway's server-sent events, heard again where the connection breaks."""

from collections.abc import Iterable, Iterator

import httpx
from pydantic import ValidationError

from kopitiam.client.http import Transport
from kopitiam.contracts.api import RunStatus
from kopitiam.contracts.errors import RunNotFound, ServiceError
from kopitiam.contracts.runs import RunState, is_run_id

_PAUSE_SECONDS = 0.5


class Listener(Transport):
    """A transport that also makes calls whose answer comes line by line, for as long as it likes."""

    def lines(self, path: str) -> Iterator[str]:
        """Ends early where the connection breaks: whoever listens calls again."""

        def attempt(timeout: httpx.Timeout) -> httpx.Response:
            request = self._http.build_request("GET", self._url(path), timeout=timeout)
            response = self._http.send(request, stream=True)
            if not response.is_success:
                response.read()
            self._judge(response)
            return response

        response = self._persist(attempt)
        try:
            yield from response.iter_lines()
        except httpx.TransportError:
            return
        finally:
            response.close()


def watch(listener: Listener, run: str) -> Iterator[RunStatus]:
    """At once, and again with every change, until the run is over."""
    if not is_run_id(run):
        raise RunNotFound(f"no run {run!r}: an id has 16 to 32 letters and digits")
    while True:
        for status in _statuses(listener.lines(f"/runs/{run}/events")):
            yield status
            if RunState(status.state).is_over:
                return
        listener.sleep(_PAUSE_SECONDS)


def _statuses(lines: Iterable[str]) -> Iterator[RunStatus]:
    for line in lines:
        field, _, value = line.partition(":")
        if field == "data":
            try:
                yield RunStatus.model_validate_json(value)
            except ValidationError:
                raise ServiceError("the events are not those of a Kopitiam gateway") from None

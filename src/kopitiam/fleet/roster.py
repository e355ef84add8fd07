"""The nodes of a fleet as its settings file names them now: they may be added and taken out while it runs."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from kopitiam.contracts.config import NodesSection, Settings, load_settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.services import watches

_log = logging.getLogger(__name__)


class Roster:
    def __init__(self, config: Path | None, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._seen = self._mark()

    def nodes(self) -> NodesSection:
        return self._current().nodes

    def probes(self) -> Mapping[str, Callable[[], bool]]:
        return watches(self._current())

    def _current(self) -> Settings:
        """A file that makes no sense changes nothing, and is told of once."""
        mark = self._mark()
        if self._config is not None and mark != self._seen:
            self._seen = mark
            try:
                settings = load_settings(self._config)
                watches(settings)
            except ConfigError as error:
                _log.warning("the fleet stays as it is: %s", error)
            else:
                self._settings = settings
        return self._settings

    def _mark(self) -> tuple[int, int] | None:
        try:
            told = self._config.stat() if self._config else None
        except OSError:
            return None
        return (told.st_mtime_ns, told.st_size) if told else None

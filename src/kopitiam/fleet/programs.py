"""How each gateway, pipeline and monitor of the settings is run."""

import sys
from pathlib import Path

from kopitiam.contracts.config import Settings
from kopitiam.fleet.processes import Program


def node_program(settings: Settings, config: Path | None, name: str) -> Program:
    kind = settings.nodes.kinds[name]
    command = [sys.executable, "-m", "kopitiam", kind, "--name", name]
    if config is not None:
        command += ["--config", str(config)]
    if kind == "pipeline":
        command += ["--shards", ",".join(map(str, settings.nodes.pipelines[name]))]
    return Program(name, kind, lambda: tuple(command))

"""What the files under deploy/ say, read as the programs that they are for read them."""

import re
import shlex
from pathlib import Path

import typer
import yaml

from kopitiam.cli.app import app
from kopitiam.contracts.config import load_settings
from kopitiam.fleet.soundness import require_sound
from kopitiam.supervision.reviver import Reviver

DEPLOY = Path(__file__).parents[3] / "deploy"
NODES = {
    "gateway-1": "gateway",
    "gateway-2": "gateway",
    "pipeline-1": "pipeline",
    "pipeline-2": "pipeline",
    "monitor-1": "monitor",
    "monitor-2": "monitor",
    "monitor-3": "monitor",
}


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def dotenv(path):
    """Lines NAME=value, the value perhaps in single quotes."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value.strip("'") for name, _, value in pairs}


def interpolated(value, variables):
    """As Compose does with ${NAME:?reason}; a name that is not there is an error."""
    return re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: variables[found[1]], value)


def parse_kopi(words):
    """The name of the command and what it would be called with; raises if it would refuse its flags."""
    command, names, arguments = typer.main.get_command(app), [], list(words)
    while hasattr(command, "resolve_command"):
        context = command.make_context("kopi", arguments)
        name, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        names.append(name)
    return " ".join(names), command.make_context(names[-1], arguments).params


def settings_of(file, environment, monkeypatch):
    """As a node under this environment reads the file: sound for a whole fleet."""
    for name, value in environment.items():
        if name.startswith("KOPI_"):
            monkeypatch.setenv(name, value)
    settings = load_settings(file)
    require_sound(settings)
    return settings


def revival(settings, node):
    """The command that would be run."""
    return shlex.join(Reviver(settings.monitor.revive, None, lambda _: None).argv(node))

"""Reads the files of deploy/ as Docker, Kubernetes, systemd and `kopi` read them."""

import re
import shlex
from pathlib import Path

import typer
import yaml

from kopitiam.cli.app import app
from kopitiam.fleet.preflight import check_settings
from kopitiam.supervision.reviver import Reviver
from kopitiam.system.settings import load_settings

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
    """Lines NAME=value; the value may be in single quotes."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value.strip("'") for name, _, value in pairs}


def interpolated(value, variables):
    """Replaces ${NAME:?reason} as Compose does; raises KeyError for an unknown name."""
    return re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: variables[match[1]], value)


def parse_kopi(arguments):
    """Returns the name of the command and its parameters; raises if `kopi` would refuse them."""
    command, names, arguments = typer.main.get_command(app), [], list(arguments)
    while hasattr(command, "resolve_command"):
        context = command.make_context("kopi", arguments)
        name, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        names.append(name)
    return " ".join(names), command.make_context(names[-1], arguments).params


def settings_of(file, environment, monkeypatch):
    """The settings of a node under this environment; raises if they do not suit a whole fleet."""
    for name, value in environment.items():
        if name.startswith("KOPI_"):
            monkeypatch.setenv(name, value)
    settings = load_settings(file)
    check_settings(settings)
    return settings


def revival(settings, node):
    """The command that revives the node."""
    return shlex.join(Reviver(settings.monitor.revive, None, print, settings.host_of).argv(node))

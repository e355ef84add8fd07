"""Every command that shows something can show it to a script."""

import pytest
import typer.main
from click import Command, Group

from kopitiam.cli.app import app

NODES = {"gateway", "pipeline", "monitor"}  # they log, and show nothing


def commands(group, *path):
    for name, command in group.commands.items():
        if isinstance(command, Group) or hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield pytest.param(command, id=" ".join((*path, name)))


EVERY = [found for found in commands(typer.main.get_command(app)) if found.id not in NODES]


@pytest.mark.parametrize("command", EVERY)
def test_a_command_takes_json_and_config(command: Command):
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {"--json", "--config"} <= flags

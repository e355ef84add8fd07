"""The list of commands: it loads no command, and agrees with the commands themselves."""

import inspect
import json
import subprocess
import sys

import pytest
from typer.main import get_command

from kopitiam.cli.app import app
from kopitiam.cli.commands import COMMANDS, load_command

HEAVY = {
    "alembic",
    "duckdb",
    "fastapi",
    "httpx",
    "numpy",
    "pandas",
    "pika",
    "psutil",
    "pyarrow",
    "pydantic",
    "pyspark",
    "sqlalchemy",
    "sqlglot",
    "structlog",
    "uvicorn",
}
LISTING = """
import json, sys
from kopitiam.cli.app import app
try:
    app(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_load_no_command_and_no_heavy_library(flag):
    done = subprocess.run(
        [sys.executable, "-c", LISTING, flag], capture_output=True, text=True, check=True, timeout=60
    )
    modules = json.loads(done.stderr)
    assert HEAVY.isdisjoint(modules)
    own = {module for module in modules if module.startswith("kopitiam.cli.")}
    assert own == {"kopitiam.cli.app", "kopitiam.cli.commands", "kopitiam.cli.process"}


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_line_of_a_command_is_the_first_paragraph_of_its_own_help(entry):
    paragraph = inspect.cleandoc(load_command(entry.name).help).partition("\n\n")[0]
    assert entry.help == " ".join(paragraph.split())


def test_a_command_is_completed_with_its_own_options():
    group = get_command(app)
    context = group.make_context("kopi", ["submit"])
    name, command, _ = group.resolve_command(context, ["submit"])
    shown = {item.value for item in command.shell_complete(command.make_context(name, ["x"]), "--res")}
    assert shown == {"--resume"}

"""The commands of `kopi`, listed without importing their modules, most of which take half a second to load.

The module of a command is imported when the command is called, completed, or asked for its own help.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context

_FLEET = "Nodes of a fleet"


@dataclass(frozen=True)
class CommandEntry:
    """A line in the help of `kopi`. The module has a function, or a group of commands, of the same name."""

    name: str
    module: str
    help: str  # the first paragraph of its own help
    panel: str | None = None


COMMANDS = (
    CommandEntry("analyze", "analyze", "Answer questions about a folder of CSV exports, in one process."),
    CommandEntry(
        "questions",
        "questions",
        "Show the questions of the catalog, or check files with questions of your own.",
    ),
    CommandEntry("serve", "serving", "Run a service for many clients: gateway and pipeline in one process."),
    CommandEntry(
        "submit", "submit", "Send a folder of CSV exports to a gateway, wait, and show the answers."
    ),
    CommandEntry(
        "ask",
        "data",
        "Ask a data set that was sent with `kopi submit --data NAME`; nothing is sent again.",
    ),
    CommandEntry("sql", "sql", "Run one SELECT over the tables of a data set; amounts are exact decimals."),
    CommandEntry(
        "watch", "watch", "Send exports to a data set as they come: whatever is complete and new in a folder."
    ),
    CommandEntry("data", "data", "List your data sets, show their versions and files, drop them."),
    CommandEntry("runs", "runs", "List your runs, newest first, or delete one."),
    CommandEntry("status", "runs", "Show the status of a run."),
    CommandEntry(
        "results", "runs", "Show the answers of a run that is done, and keep them as files with --out."
    ),
    CommandEntry("cancel", "runs", "End a run and remove its data; other runs are not affected."),
    CommandEntry(
        "adopt",
        "adopt",
        "Accept a registry that does not match home or storage: a backup, a new registry, or another "
        "storage.",
    ),
    CommandEntry(
        "generate", "generate", "Generate synthetic sales in the layout of the real chain's exports."
    ),
    CommandEntry(
        "verify",
        "verify",
        "Check answer files against the CSV exports with DuckDB, without Spark: every cell, order and ties.",
    ),
    CommandEntry(
        "bench",
        "bench",
        "Compare with DuckDB, Polars, pandas and plain PySpark on the same CSVs, in turns, in one run.",
    ),
    CommandEntry(
        "warm",
        "analyze",
        "Prepare an installation: a compiled CSV parser, a lean Spark home, and a Java class archive.",
    ),
    CommandEntry("gateway", "serving", "Run one gateway of a fleet.", _FLEET),
    CommandEntry(
        "pipeline",
        "serving",
        "Run one pipeline of a fleet, for the shards that the settings assign to it.",
        _FLEET,
    ),
    CommandEntry(
        "monitor",
        "serving",
        "Run one monitor of a fleet: it watches nodes, revives dead ones, and opens barriers.",
        _FLEET,
    ),
    CommandEntry(
        "chaos",
        "chaos",
        "Kill nodes of a running fleet at random, while clients submit and verify; then report what "
        "happened.",
        _FLEET,
    ),
    CommandEntry("node", "node", "Start, stop or show one node of the fleet.", _FLEET),
    CommandEntry(
        "cluster", "cluster", "Bring the nodes of this machine up or down, and show the fleet.", _FLEET
    ),
)


class LazyGroup(TyperGroup):
    """A group that has only the names and help lines of its commands until one of them is called."""

    def __init__(self, **attributes: Any) -> None:
        listed = {
            entry.name: TyperCommand(entry.name, help=entry.help, rich_help_panel=entry.panel)
            for entry in COMMANDS
        }
        super().__init__(**attributes | {"commands": listed})

    def resolve_command(
        self, ctx: "Context", args: list[str]
    ) -> "tuple[str | None, Command | None, list[str]]":
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else None, rest


def load_command(name: str) -> "Command":
    """Return a command with its options, after importing its module."""
    entry = next(entry for entry in COMMANDS if entry.name == name)
    command = getattr(import_module(f"kopitiam.cli.{entry.module}"), name)
    if not isinstance(command, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command()(command)
        command = alone
    return typer.main.get_command(command)

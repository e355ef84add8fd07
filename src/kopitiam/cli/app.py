"""The `kopi` command: its subcommands, and the one place where errors and signals become exit codes."""

import logging
import sys
from typing import Annotated

import typer

from kopitiam import __version__
from kopitiam.cli.adopt import adopt
from kopitiam.cli.analyze import analyze
from kopitiam.cli.bench import bench
from kopitiam.cli.chaos import chaos
from kopitiam.cli.cluster import cluster_app
from kopitiam.cli.generate import generate
from kopitiam.cli.node import node_app
from kopitiam.cli.nodes import gateway, monitor, pipeline
from kopitiam.cli.questions import questions
from kopitiam.cli.runs import cancel, results, runs, status
from kopitiam.cli.serve import serve
from kopitiam.cli.signals import Terminated, raise_on_signals
from kopitiam.cli.submit import submit
from kopitiam.cli.verify import verify
from kopitiam.cli.warm import warm
from kopitiam.contracts.errors import KopitiamError
from kopitiam.system.crash_points import armed_point

app = typer.Typer(
    name="kopi",
    help="Exact answers to questions about a coffee chain's sales: four that come with it, and your own.",
    epilog="Start with: kopi generate --out data, then kopi analyze data --out answers",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (
    analyze,
    questions,
    serve,
    submit,
    runs,
    status,
    results,
    cancel,
    adopt,
    generate,
    verify,
    bench,
    warm,
):
    app.command()(command)
for node in (gateway, pipeline, monitor):
    app.command(rich_help_panel="Nodes of a fleet")(node)
app.add_typer(node_app, name="node", rich_help_panel="Nodes of a fleet")
app.add_typer(cluster_app, name="cluster", rich_help_panel="Nodes of a fleet")
app.command(rich_help_panel="Nodes of a fleet")(chaos)


INTERRUPTED = 130


def main() -> None:
    raise_on_signals()
    logging.getLogger().addHandler(logging.NullHandler())  # py4j mourns a killed JVM on the root logger
    try:
        armed_point()  # a misspelled one is better told now than never reached
        app()
    except KopitiamError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # Typer's word for a KeyboardInterrupt
            _complain("interrupted")
        raise
    except Terminated:
        _complain("terminated")
        sys.exit(143)


def _complain(message: str) -> None:
    typer.echo(f"kopi: {message}", err=True)


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"kopi {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    del version

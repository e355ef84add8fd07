"""The `kopi` command: errors and signals become exit codes. Its commands are listed in `commands`."""

import logging
import sys
from typing import Annotated

import typer

from kopitiam import __version__
from kopitiam.cli.commands import LazyGroup
from kopitiam.cli.process import Terminated, raise_on_signals
from kopitiam.contracts.errors import KopitiamError
from kopitiam.system.crash_points import armed_point

app = typer.Typer(
    name="kopi",
    cls=LazyGroup,
    help="Exact answers to questions about a coffee chain's sales: four built-in ones, and your own.",
    epilog="Start with: kopi generate --out data, then kopi analyze data --out answers",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
INTERRUPTED = 130


def main() -> None:
    raise_on_signals()
    logging.getLogger().addHandler(
        logging.NullHandler()
    )  # py4j logs errors of a killed JVM on the root logger
    try:
        armed_point()  # raises for an unknown crash point
        app()
    except KopitiamError as error:
        _print_error(str(error))
        sys.exit(error.exit_code)
    except SystemExit as error:
        if error.code == INTERRUPTED:  # Typer's exit code for KeyboardInterrupt
            _print_error("interrupted")
        raise
    except Terminated:
        _print_error("terminated")
        sys.exit(143)


def _print_error(message: str) -> None:
    typer.echo(f"kopi: {message}", err=True)


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"kopi {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version

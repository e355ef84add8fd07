"""The `kopi` command: its subcommands, and the one place where errors and signals become exit codes."""

import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from kopitiam import __version__
from kopitiam.cli.analyze import analyze
from kopitiam.cli.bench import bench
from kopitiam.cli.generate import generate
from kopitiam.cli.verify import verify
from kopitiam.cli.warm import warm
from kopitiam.contracts.errors import KopitiamError

app = typer.Typer(
    name="kopi",
    help="Exact answers to four questions about a coffee chain's sales.",
    epilog="Start with: kopi generate --out data, then kopi analyze data --out answers",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (analyze, generate, verify, bench, warm):
    app.command()(command)


class Terminated(BaseException):
    """SIGTERM, as an exception, so that everything is closed on the way out."""


def main() -> None:
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(standalone_mode=False)
    except KopitiamError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except typer.Exit as request:
        sys.exit(request.exit_code)
    except typer.Abort:
        sys.exit(130)
    except typer.TyperUsageError as error:
        error.show()
        sys.exit(2)
    except KeyboardInterrupt:
        _complain("interrupted")
        sys.exit(130)
    except Terminated:
        _complain("terminated")
        sys.exit(143)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends at once
    raise Terminated


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

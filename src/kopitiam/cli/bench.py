"""`kopi bench`: compares Kopitiam with other engines on the same files."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import kopitiam
from kopitiam.cli.options import Config, Json
from kopitiam.contracts.errors import ConfigError, RunFailed
from kopitiam.system.settings import load_settings

if TYPE_CHECKING:
    from types import ModuleType

_CHECKOUT = Path(kopitiam.__file__).parents[2]


def bench(
    scale: Annotated[float, typer.Option(help="Size of the data; 1 is the full size.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the data.")] = 7,
    rounds: Annotated[int, typer.Option(min=1, help="How often each engine runs, in turns.")] = 3,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="duckdb, polars, pandas, pyspark, kopi, service, streaming, clients, months, wild or ingest."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Use this data instead of generated data.")
    ] = None,
    sample: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Small data, for a comparison with a bare Spark session."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Compare with DuckDB, Polars, pandas and plain PySpark on the same CSVs, in turns, in one run.

    A running service takes part too: the report has its time from the last END to the answers, the cost of a
    batch, the steps of a submit, several clients at once, a data set that grows by a month, and data of the
    wild profile.

    Needs a source checkout and its development environment (make bench).

    Examples:

      kopi bench --scale 0.1

      kopi bench --scale 1 --only polars --only kopi --json
    """
    load_settings(config)
    suite, report, measure = _benchmarks()
    console = Console(stderr=True)

    def announce(step: str) -> None:
        console.print(step, style="dim", highlight=False)

    try:
        result: dict[str, Any] = suite.run_suite(
            scale, seed, rounds, data=data, only=only, sample=sample, announce=announce
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except measure.CommandError as error:
        raise RunFailed(str(error)) from None
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        Console().print(report.render(result))
    if not result["ok"]:
        raise RunFailed("an engine failed, answers differ, or a limit is exceeded")


def _benchmarks() -> "tuple[ModuleType, ModuleType, ModuleType]":
    if not (_CHECKOUT / "tools" / "benchmarks").is_dir():
        raise ConfigError("kopi bench needs a source checkout: the benchmarks are not part of the package")
    sys.path.insert(0, str(_CHECKOUT))
    from tools.benchmarks import measure, report, suite

    return suite, report, measure

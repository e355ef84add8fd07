"""`kopi generate`: synthetic data in the real layout."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kopitiam.cli.options import Config, Json
from kopitiam.contracts.config import load_settings


def generate(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to make; must be empty or not there yet.")],
    scale: Annotated[float, typer.Option(help="1 = 14.6 M transactions, 29 M items, 2.2 M users.")] = 0.01,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 7,
    profile: Annotated[
        Literal["real", "wild"],
        typer.Option(help="real: the proportions of the real chain; wild: any valid data."),
    ] = "real",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make synthetic sales in the layout of the real chain.

    The profile real has its proportions too. The profile wild is for tests: every cell is valid, and the seed
    draws all else: one store or ten thousand, names of 1,024 characters, ids and amounts at their bounds, ids
    that no table lists, up to 100,000 distinct amounts, rows in any order. --json prints the drawn shape.

    Examples:

      kopi generate --out data                     146,000 transactions

      kopi generate --out full --scale 1 --seed 7  the full size, 3.3 GB

      kopi generate --out wild --profile wild --seed 12 --json
    """
    load_settings(config)
    from kopitiam.synthetic import Profile
    from kopitiam.synthetic import generate as make

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:18}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks = {}

        def on_rows(table: str, done: int, total: int) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(table, total=total)
            bars.update(tasks[table], completed=done)

        made = make(out, scale, seed, on_rows, profile=Profile(profile))
    if as_json:
        told = {"out": str(out), "rows": made.rows, "bytes": made.bytes, "files": made.files}
        shape = {} if made.shape is None else {"shape": asdict(made.shape)}
        typer.echo(json.dumps(told | {"profile": profile} | shape))
    else:
        rows = ", ".join(f"{count:,} {table}" for table, count in made.rows.items())
        typer.echo(f"{rows}: {made.files} files, {made.bytes / 1e6:,.1f} MB in {out}")

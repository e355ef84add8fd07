"""`kopi generate`: synthetic data in the layout of the real exports."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kopitiam.cli.options import Config, Json
from kopitiam.system.settings import load_settings


def generate(
    out: Annotated[Path, typer.Option(metavar="DIR", help="New or empty folder.")],
    scale: Annotated[float, typer.Option(help="1 = 14.6 M transactions, 29 M items, 2.2 M users.")] = 0.01,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 7,
    profile: Annotated[
        Literal["real", "wild"],
        typer.Option(help="real: the proportions of the real chain; wild: any valid data."),
    ] = "real",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Generate synthetic sales in the layout of the real chain's exports.

    The profile real also has its proportions. The profile wild is for tests: every cell is valid, and the
    seed determines the rest: one store or ten thousand, names of 1,024 characters, ids and amounts at their
    bounds, ids that no table lists, up to 100,000 distinct amounts, rows in any order. --json prints these
    choices.

    Examples:

      kopi generate --out data                     146,000 transactions

      kopi generate --out full --scale 1 --seed 7  the full size, 3.3 GB

      kopi generate --out wild --profile wild --seed 12 --json
    """
    load_settings(config)
    from kopitiam.synthetic import Profile
    from kopitiam.synthetic import generate as generate_files

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:18}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks = {}

        def on_rows(table: str, done: int, total: int) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(table, total=total)
            bars.update(tasks[table], completed=done)

        generated = generate_files(out, scale, seed, on_rows, profile=Profile(profile))
    if as_json:
        counts = {"rows": generated.rows, "bytes": generated.bytes, "files": generated.files}
        shape = {} if generated.shape is None else {"shape": asdict(generated.shape)}
        typer.echo(json.dumps({"out": str(out)} | counts | {"profile": profile} | shape))
    else:
        rows = ", ".join(f"{count:,} {table}" for table, count in generated.rows.items())
        typer.echo(f"{rows}: {generated.files} files, {generated.bytes / 1e6:,.1f} MB in {out}")

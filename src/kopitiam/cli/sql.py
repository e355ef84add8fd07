"""`kopi sql`: one SELECT over the tables of a data set, as a table on the terminal or as a file."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from kopitiam.cli.columns import column_lines, name_text
from kopitiam.cli.data import Name, Version
from kopitiam.cli.options import SHORT_PATIENCE, Authority, Config, Json, Patience, Server, Token, connected
from kopitiam.client.downloads import require_writable
from kopitiam.contracts.data_api import SqlQuery
from kopitiam.contracts.errors import ConfigError, InputError
from kopitiam.contracts.sql_queries import MAX_SQL_CHARACTERS
from kopitiam.results.cells import plain_text
from kopitiam.system.settings import load_settings

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_SHOWN = 200  # rows on a terminal
_FIGURES = frozenset({"integer", "decimal", "float"})


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    XLSX = "xlsx"


def sql(
    name: Name,
    query: Annotated[
        str,
        typer.Argument(metavar="SELECT", help="The query; - reads standard input.", show_default=False),
    ],
    *,
    version: Version = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Form of the result \\[default: that of the name of --out, else table].",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="File for the result.", show_default=False)
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", min=1, help="Keep at most N rows.", show_default=False),
    ] = None,
    seconds: Annotated[
        int | None,
        typer.Option("--seconds", metavar="S", min=1, help="Cancel it after S seconds.", show_default=False),
    ] = None,
    server: Server = None,
    token: Token = None,
    patience: Patience = SHORT_PATIENCE,
    authority: Authority = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run one SELECT over the tables of a data set; amounts are exact decimals.

    A query reads the tables of one version and nothing else; the gateway limits its time and its rows. The
    tables have the columns that the data set kept: see kopi data show NAME. To keep every column, send the
    files again with kopi submit DIR --data NAME --columns all.

    Examples:

      kopi sql sales "select store_id, sum(final_amount) from transactions group by 1"

      kopi sql sales "select * from stores" --format csv > stores.csv

      kopi sql sales "select city, count(*) as n from stores group by 1" --out n.xlsx

      kopi sql sales - --version 3 < query.sql
    """
    shape = _form(Format.JSON if as_json else form, out)
    text = _standard_input() if query == "-" else query
    settings = load_settings(config)
    with connected(server or ",".join(settings.gateway_urls), token, authority, patience) as client:
        result = client.sql(name, text, version, seconds=seconds, rows=rows)
        if out is not None:
            result.save(out, shape.value)
            typer.echo(f"{out}: {_summary(result.query)}", err=True)
        elif shape is Format.TABLE:
            _show(result.query, result.table(), Console())
        else:
            sys.stdout.buffer.write(result.content(shape.value))
            if result.query.cut:
                typer.echo(_summary(result.query), err=True)


def _form(form: Format | None, out: Path | None) -> Format:
    """Raises ConfigError if the options do not fit together, InputError if the file cannot be written."""
    if out is None:
        if form in (Format.PARQUET, Format.XLSX):
            raise ConfigError(f"--format {form.value}: expected with --out FILE")
        return form or Format.TABLE
    require_writable(out.parent)
    suffix = out.suffix.removeprefix(".").lower()
    if form is None and suffix in set(Format) - {Format.TABLE}:
        return Format(suffix)
    if form is None or form is Format.TABLE:
        raise ConfigError(f"--out {out}: expected --format csv, json, parquet or xlsx, or such a name")
    return form


def _standard_input() -> str:
    try:
        text = sys.stdin.read(MAX_SQL_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8 text") from None
    if not text.strip():
        raise InputError("standard input has no query")
    return text


def _show(query: SqlQuery, table: "pa.Table", console: Console) -> None:
    first = table.slice(0, _MOST_SHOWN)
    columns = [plain_text(column.combine_chunks()).to_pylist() for column in first.columns]
    figures = {place for place, column in enumerate(query.columns) if column.kind in _FIGURES}
    titles = [name_text(column.name) for column in query.columns]
    for line in column_lines(console, titles, list(zip(*columns, strict=True)), figures):
        console.print(line, soft_wrap=True)
    left_out = table.num_rows - first.num_rows
    more = f"; {left_out:,} are not shown here: keep them with --out FILE" if left_out else ""
    console.print(Text(f"{_summary(query)}{more}", "dim"), soft_wrap=True)


def _summary(query: SqlQuery) -> str:
    count = f"{query.rows:,} row{'' if query.rows == 1 else 's'}"
    cut = " (cut here: the query has more; see --rows and the gateway's sql_rows)" if query.cut else ""
    return f"{count}{cut} of data set {query.data}, version {query.version}, in {query.seconds or 0:.1f} s"

"""The flags by which a command finds its gateway."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.client.client import Client
from kopitiam.client.http import Transport

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="KOPI_SERVER",
        help="The gateway \\[default: that of the settings].",
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="T", envvar="KOPI_TOKEN", help="Your token.", show_default=False),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        envvar="KOPI_CA",
        help="Certificates to trust instead of the system's.",
        show_default=False,
    ),
]
Patience = Annotated[
    float, typer.Option("--patience", metavar="S", min=0, help="Seconds to wait for a gateway that is away.")
]
SHORT_PATIENCE = 10.0  # of commands that only ask


@contextmanager
def connected(
    server: str,
    token: str | None,
    authority: Path | None,
    patience: float,
    on_trouble: Callable[[str], None] = lambda _: None,
) -> Iterator[Client]:
    transport = Transport(
        server, token, patience_seconds=patience, verify=authority or True, on_trouble=on_trouble
    )
    with Client.over(transport) as client:
        yield client

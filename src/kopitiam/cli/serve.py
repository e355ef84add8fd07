"""`kopi serve`: the embedded service for several clients."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.cli.logs import set_up_logs
from kopitiam.cli.options import Config, Insecure, Json, LogJson
from kopitiam.cli.signals import Terminated
from kopitiam.contracts.config import load_settings


def serve(
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where everything is kept \\[default: ~/.kopitiam].", show_default=False
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on \\[default: 127.0.0.1].", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 takes a free one \\[default: 8440].", show_default=False),
    ] = None,
    insecure: Insecure = False,
    config: Config = None,
    as_json: Json = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what goes on, Spark included.")
    ] = False,
    log_json: LogJson = False,
) -> None:
    """Take uploads from many clients and answer them: gateway and pipeline in one process.

    The home folder survives restarts, and so does every acknowledged chunk.

    Examples:

      kopi serve

      kopi serve --home /srv/kopitiam --port 8441

    To listen for other machines, set \\[gateway.tokens] first.
    """
    try:
        settings = load_settings(config).changed(home=home, host=host, port=port, insecure=insecure)
        settings.gateway.require_guarded()
        set_up_logs("serve", is_verbose=verbose, as_json=log_json)
        from kopitiam.runtime.home import owned
        from kopitiam.runtime.serve import service
        from kopitiam.spark.session import SparkOptions, spark_engine
        from kopitiam.system.files import keep_private
        from kopitiam.system.logs import KeptLogs, small_logs

        keep_private(settings.home, settings.umask)
        options = SparkOptions(settings.spark.master, settings.spark.conf, is_verbose=verbose)
        with (
            owned(settings.home) as scratch,
            small_logs(settings.home, settings.log_bytes),
            spark_engine(options, scratch, KeptLogs(settings.home / "logs", "serve")) as engine,
            service(settings, engine, scratch) as served,
        ):
            if as_json:
                typer.echo(json.dumps({"url": served.url, "home": str(settings.home), "pid": os.getpid()}))
            else:
                typer.echo(f"Kopitiam serves at {served.url}, home {settings.home}")
            engine.session.result()  # without Spark there is nothing to serve
            served.trouble.result()
    except Terminated:
        if not as_json:
            typer.echo("Kopitiam has closed")

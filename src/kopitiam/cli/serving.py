"""`kopi serve`, `gateway`, `pipeline`, `monitor`: services in the foreground.

SIGTERM ends them with exit code 0, also during startup.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.cli.options import Config, Insecure, Json, LogJson
from kopitiam.cli.process import Terminated, set_up_logs
from kopitiam.contracts.batches import MOST_SHARDS
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.system.settings import load_settings


def serve(
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for all data \\[default: ~/.kopitiam].", show_default=False),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on \\[default: 127.0.0.1].", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port to listen on; 0 takes a free one \\[default: 8440].",
            show_default=False,
        ),
    ] = None,
    insecure: Insecure = False,
    config: Config = None,
    as_json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, Spark included.")] = False,
    log_json: LogJson = False,
) -> None:
    """Run a service for many clients: gateway and pipeline in one process.

    After a restart it continues with the data in its home folder; no acknowledged chunk is lost.

    Examples:

      kopi serve

      kopi serve --home /srv/kopitiam --port 8441

    To listen for other machines, set \\[gateway.tokens] first.
    """
    try:
        settings = load_settings(config).changed(home=home, host=host, port=port, insecure=insecure)
        settings.gateway.require_guarded()
        set_up_logs("serve", is_verbose=verbose, as_json=log_json)
        from kopitiam.runtime.serve import embedded_service

        with embedded_service(settings, is_verbose=verbose) as service:
            if as_json:
                typer.echo(json.dumps({"url": service.url, "home": str(settings.home), "pid": os.getpid()}))
            else:
                typer.echo(f"Kopitiam serves at {service.url}, home {settings.home}")
            service.wait()
    except Terminated:
        if not as_json:
            typer.echo("Kopitiam has closed")


Name = Annotated[str, typer.Option("--name", metavar="N", help="Name of the node under \\[nodes].")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]


def gateway(
    name: Name = "gateway-1",
    insecure: Insecure = False,
    config: Config = None,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Run one gateway of a fleet.

    Example:

      kopi gateway --config kopitiam.toml --name gateway-1
    """
    with contextlib.suppress(Terminated):
        set_up_logs(name, is_verbose=verbose, as_json=log_json)
        from kopitiam.runtime.gateway import run_gateway

        run_gateway(load_settings(config).changed(insecure=insecure), name)


def pipeline(
    name: Name = "pipeline-1",
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="0,1", help="Only these shards \\[default: those of \\[nodes]].", show_default=False
        ),
    ] = None,
    config: Config = None,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Run one pipeline of a fleet, for the shards that the settings assign to it.

    Examples:

      kopi pipeline --config kopitiam.toml --name pipeline-1

      kopi pipeline --config kopitiam.toml --name pipeline-2 --shards 2,3
    """
    with contextlib.suppress(Terminated):
        set_up_logs(name, is_verbose=verbose, as_json=log_json)
        from kopitiam.runtime.pipeline import run_pipeline

        settings = load_settings(config)
        run_pipeline(settings, name, _shards(settings, name, shards), is_verbose=verbose)


def monitor(
    name: Name = "monitor-1", config: Config = None, verbose: Verbose = False, log_json: LogJson = False
) -> None:
    """Run one monitor of a fleet: it watches nodes, revives dead ones, and opens barriers.

    Example:

      kopi monitor --config kopitiam.toml --name monitor-1
    """
    with contextlib.suppress(Terminated):
        set_up_logs(name, is_verbose=verbose, as_json=log_json)
        from kopitiam.runtime.monitor import run_monitor

        run_monitor(load_settings(config), name, config.absolute() if config else None)


def _shards(settings: Settings, name: str, flag: str | None) -> tuple[int, ...]:
    if flag is None:
        shards = settings.nodes.pipelines.get(name, ())
    else:
        try:
            shards = tuple(sorted({int(shard) for shard in flag.split(",")}))
        except ValueError:
            raise ConfigError(f"--shards {flag}: expected numbers, such as 0,1") from None
    if not shards or not all(0 <= shard < MOST_SHARDS for shard in shards):
        text = ",".join(map(str, shards)) or "none"
        raise ConfigError(
            f"shards {text} of {name}: expected some of 0 to {settings.pipeline.shards - 1}, "
            "or of those that earlier runs began with"
        )
    return shards

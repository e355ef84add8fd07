"""`kopi gateway`, `pipeline`, `monitor`: one node of a fleet in the foreground.

At SIGTERM they end with 0, also while they are still loading.
"""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.cli.logs import set_up_logs
from kopitiam.cli.options import Config, Insecure, LogJson
from kopitiam.cli.signals import Terminated
from kopitiam.contracts.batches import MOST_SHARDS
from kopitiam.contracts.config import Settings, load_settings
from kopitiam.contracts.errors import ConfigError

Name = Annotated[str, typer.Option("--name", metavar="N", help="The node's name in \\[nodes].")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]


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
        settings = _settings(config, name, verbose, log_json).changed(insecure=insecure)
        settings.gateway.require_guarded()
        from kopitiam.runtime.node import member, run_gateway

        with member(_listening(settings, name), name, "gateway") as node:
            run_gateway(node)


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
    """Run one pipeline of a fleet, for the shards that the configuration gives it.

    Examples:

      kopi pipeline --config kopitiam.toml --name pipeline-1

      kopi pipeline --config kopitiam.toml --name pipeline-2 --shards 2,3
    """
    with contextlib.suppress(Terminated):
        settings = _settings(config, name, verbose, log_json)
        wanted = _shards(settings, name, shards)
        from kopitiam.runtime.node import member, own_scratch, run_pipeline, take_cores_over
        from kopitiam.spark.executors import is_cluster
        from kopitiam.spark.session import SparkOptions, spark_engine

        spark = settings.spark
        options = SparkOptions(
            spark.master, spark.conf, is_verbose=verbose, patience_seconds=spark.patience_seconds
        )
        with own_scratch(settings.home, name) as scratch:
            if is_cluster(spark.master):
                take_cores_over(scratch)
            with (
                spark_engine(options, scratch) as engine,
                member(settings, name, "pipeline") as node,
            ):
                run_pipeline(node, wanted, engine, scratch)


def monitor(
    name: Name = "monitor-1", config: Config = None, verbose: Verbose = False, log_json: LogJson = False
) -> None:
    """Run one monitor of a fleet: it watches, elects, opens barriers, revives.

    Example:

      kopi monitor --config kopitiam.toml --name monitor-1
    """
    with contextlib.suppress(Terminated):
        settings = _settings(config, name, verbose, log_json)
        from kopitiam.runtime.node import member, run_monitor

        with member(settings, name, "monitor") as node:
            run_monitor(node, config.absolute() if config else None)


def _settings(config: Path | None, name: str, verbose: bool, log_json: bool) -> Settings:
    set_up_logs(name, is_verbose=verbose, as_json=log_json)
    from kopitiam.fleet.services import service_settings
    from kopitiam.system.files import keep_private

    settings = load_settings(config)
    keep_private(settings.home, settings.umask)
    return service_settings(settings)


def _listening(settings: Settings, name: str) -> Settings:
    """The first gateway has the address of the settings, the others the next ports."""
    _, port = settings.gateway.address
    if not port or name not in settings.nodes.gateways:
        return settings
    return settings.changed(port=port + settings.nodes.gateways.index(name))


def _shards(settings: Settings, name: str, said: str | None) -> tuple[int, ...]:
    if said is None:
        wanted = settings.nodes.pipelines.get(name, ())
    else:
        try:
            wanted = tuple(sorted({int(shard) for shard in said.split(",")}))
        except ValueError:
            raise ConfigError(f"--shards {said}: want numbers, such as 0,1") from None
    if not wanted or not all(0 <= shard < MOST_SHARDS for shard in wanted):
        told = ",".join(map(str, wanted)) or "none"
        raise ConfigError(
            f"shards {told} of {name}: want some of 0 to {settings.pipeline.shards - 1}, "
            "or of those that earlier runs began with"
        )
    return wanted

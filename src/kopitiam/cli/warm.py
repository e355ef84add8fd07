"""`kopi warm`: a Spark home that starts sooner, and a rehearsal that leaves a Java class archive behind."""

import json
import tempfile
from pathlib import Path

import typer

from kopitiam.cli.options import Config, Json
from kopitiam.contracts.config import load_settings

_DUMP_SECONDS = 120  # the JVM writes the archive when it leaves


def warm(config: Config = None, as_json: Json = False) -> None:
    """Make a lean Spark home and a Java class archive, so that Spark starts in half the time from now on.

    Runs one small analysis. Do it once for each installation; `make setup` does it for you.
    """
    settings = load_settings(config)
    from kopitiam.runtime.analyze import private_client
    from kopitiam.spark.installation import archive_path, make_spark_home, record_option
    from kopitiam.spark.java import find_java
    from kopitiam.spark.session import SparkOptions
    from kopitiam.synthetic import generate

    java = find_java()
    archive = archive_path(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    make_spark_home()
    with tempfile.TemporaryDirectory(prefix="kopitiam-", dir=archive.parent) as scratch:
        recorded = Path(scratch) / archive.name
        generate(Path(scratch) / "data", scale=0.001, seed=1)
        options = SparkOptions(
            java_options=record_option(recorded), is_brief=True, stop_seconds=_DUMP_SECONDS
        )
        with private_client(settings, options) as (client, _):
            client.submit(Path(scratch) / "data").wait()
        if recorded.is_file():
            recorded.replace(archive)
    is_there = archive.is_file()
    if as_json:
        typer.echo(json.dumps({"archive": str(archive) if is_there else None, "java": java.version}))
    else:
        typer.echo(
            f"Class archive for Java {java.version}: {archive if is_there else 'this Java makes none'}"
        )

"""`kopi adopt`: says that a registry and its files belong together from now on."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kopitiam.cli.options import Config, Json
from kopitiam.contracts.config import load_settings
from kopitiam.contracts.errors import ConfigError, RunNotFound

_SHOWN = 20


def adopt(
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The home, if not that of the settings.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Accept a registry that home or storage does not know: a back-up, a new one, or another storage.

    Stop every node first. Shows which runs in storage the registry does not know: their files are kept for
    gateway.orphan_hours, and then removed.

    Examples:

      kopi adopt --config fleet.toml

      kopi adopt --home /srv/kopitiam --yes
    """
    from kopitiam.contracts.runs import is_run_id
    from kopitiam.fleet.services import service_settings
    from kopitiam.landing.recognition import Premises
    from kopitiam.landing.tidying import runs_at_rest
    from kopitiam.registry.engine import SQLITE_FILE
    from kopitiam.registry.registry import Registry, open_registry
    from kopitiam.runtime.home import owned
    from kopitiam.storage.open import open_storage
    from kopitiam.system.files import keep_private

    def is_known(registry: Registry, run: str) -> bool:
        try:
            registry.get_run(run)
        except RunNotFound:
            return False
        return True

    settings = service_settings(load_settings(config).changed(home=home))
    keep_private(settings.home, settings.umask)
    with (
        owned(settings.home),
        _no_new_file(settings.home / SQLITE_FILE),
        contextlib.closing(
            open_registry(settings.registry.url, settings.home, is_checked=True, may_be_new=True)
        ) as registry,
    ):
        storage = open_storage(settings)
        premises = Premises(settings.home, storage, settings.storage.url)
        found = registry.identity()
        unknown = sorted(
            run for run in filter(is_run_id, runs_at_rest(storage)) if not is_known(registry, run)
        )
        if not as_json:
            typer.echo(f"registry {found.id}, mark {found.mark}")
            for place, stored in premises.carried().items():
                typer.echo(
                    f"{place}: " + (f"registry {stored.id}, mark {stored.mark}" if stored else "no mark")
                )
            typer.echo(f"runs in storage that the registry does not know: {len(unknown)}")
            for run in unknown[:_SHOWN]:
                typer.echo(f"  {run}")
            if len(unknown) > _SHOWN:
                typer.echo(f"  and {len(unknown) - _SHOWN} more")
        if not yes and not sys.stdin.isatty():
            raise ConfigError("nothing is changed without --yes")
        if not yes and not typer.confirm("Use this registry from now on?"):
            raise typer.Abort
        adopted = premises.adopt(registry)
        if as_json:
            typer.echo(json.dumps({"registry": adopted.id, "mark": adopted.mark, "unknown": unknown}))
        else:
            typer.echo(f"adopted, mark {adopted.mark}")


@contextlib.contextmanager
def _no_new_file(file: Path) -> Iterator[None]:
    """A registry that was made to be looked at goes again, unless it was adopted."""
    is_there = file.exists()
    try:
        yield
    except BaseException:
        if not is_there:
            for made in file.parent.glob(f"{file.name}*"):
                made.unlink(missing_ok=True)
        raise

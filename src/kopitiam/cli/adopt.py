"""`kopi adopt`: marks a registry, a home and a storage as belonging together."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kopitiam.cli.options import Config, Json
from kopitiam.contracts.errors import ConfigError
from kopitiam.system.settings import load_settings

if TYPE_CHECKING:
    from kopitiam.landing.recognition import Premises
    from kopitiam.registry.registry import Registry
    from kopitiam.storage.port import StoragePort

_SHOWN = 20


def adopt(
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Home folder \\[default: that of the settings].", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Accept a registry that does not match home or storage: a backup, a new registry, or another storage.

    Stop all nodes first. Lists the runs and data files in storage that the registry does not know: they are
    removed after gateway.orphan_hours.

    Examples:

      kopi adopt --config fleet.toml

      kopi adopt --home /srv/kopitiam --yes
    """
    from kopitiam.fleet.services import service_settings
    from kopitiam.landing.recognition import Premises
    from kopitiam.registry.engine import SQLITE_FILE
    from kopitiam.registry.registry import open_registry
    from kopitiam.runtime.home import exclusive_home
    from kopitiam.storage.open import open_storage
    from kopitiam.system.files import keep_private

    settings = service_settings(load_settings(config).changed(home=home))
    keep_private(settings.home, settings.umask)
    with (
        exclusive_home(settings.home),
        _removed_unless_adopted(settings.home / SQLITE_FILE),
        contextlib.closing(
            open_registry(settings.registry.url, settings.home, is_checked=True, may_be_new=True)
        ) as registry,
    ):
        storage = open_storage(settings)
        premises = Premises(settings.home, storage, settings.storage.url)
        unknown = _unknown_runs(registry, storage)
        if not as_json:
            _show(registry, premises, unknown)
        if not yes and not sys.stdin.isatty():
            raise ConfigError("nothing is changed without --yes")
        if not yes and not typer.confirm("Use this registry from now on?"):
            raise typer.Abort
        adopted = premises.adopt(registry)
        if as_json:
            typer.echo(json.dumps({"registry": adopted.id, "mark": adopted.mark, "unknown": unknown}))
        else:
            typer.echo(f"adopted, mark {adopted.mark}")


def _unknown_runs(registry: "Registry", storage: "StoragePort") -> list[str]:
    from kopitiam.contracts.runs import is_run_id
    from kopitiam.landing.tidying import owners_at_rest

    ids = filter(is_run_id, owners_at_rest(storage))
    return sorted(id_ for id_ in ids if not registry.is_known(id_))


def _show(registry: "Registry", premises: "Premises", unknown: list[str]) -> None:
    identity = registry.identity()
    typer.echo(f"registry {identity.id}, mark {identity.mark}")
    for place, stored in premises.marks().items():
        typer.echo(f"{place}: " + (f"registry {stored.id}, mark {stored.mark}" if stored else "no mark"))
    typer.echo(f"runs in storage that the registry does not know: {len(unknown)}")
    for run in unknown[:_SHOWN]:
        typer.echo(f"  {run}")
    if len(unknown) > _SHOWN:
        typer.echo(f"  and {len(unknown) - _SHOWN} more")


@contextlib.contextmanager
def _removed_unless_adopted(file: Path) -> Iterator[None]:
    """Remove a registry file that this command created, if the block raises."""
    existed = file.exists()
    try:
        yield
    except BaseException:
        if not existed:
            for created in file.parent.glob(f"{file.name}*"):
                created.unlink(missing_ok=True)
        raise

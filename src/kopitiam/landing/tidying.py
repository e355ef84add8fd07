"""What a run leaves on disk, and how it goes. Nothing here minds being cut short and done again."""

import shutil
from pathlib import Path

from kopitiam.landing.layout import Home


def remove_material(home: Home, run: str, published: Path | None = None) -> None:
    """What led to the answers, and what was written without being published."""
    for folder in (*home.landing_folders(run), *home.results(run).glob("*=*")):
        if folder != published:
            shutil.rmtree(folder, ignore_errors=True)
    for folder in home.partial_folders(run):
        remove_partial(folder)


def remove_run(home: Home, run: str) -> None:
    """Material first: whoever finds answers may still trust them."""
    remove_material(home, run)
    for folder in (home.rejected(run), home.results(run)):
        shutil.rmtree(folder, ignore_errors=True)


def remove_partial(folder: Path) -> None:
    """With the folders above it that this leaves empty: those of its run and of its batch."""
    shutil.rmtree(folder, ignore_errors=True)
    for above in folder.parents:
        if "=" not in above.name or above.name.startswith("pipeline="):
            return
        try:
            above.rmdir()
        except OSError:
            return

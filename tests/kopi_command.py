"""Runs `kopi` as a process of its own without starting Python each time.

The processes are forked from a server that has loaded the command already, which saves a second for each.
"""

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kopitiam.cli.commands import COMMANDS

_LIMIT_SECONDS = 60.0  # a quiet machine needs less than two
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        *sorted({f"kopitiam.cli.{entry.module}" for entry in COMMANDS}),
        *("kopitiam.cli.delivery", "kopitiam.client.folder", "kopitiam.fleet.cluster"),
    ]
)


class Outcome(NamedTuple):
    code: int | None
    stdout: str
    stderr: str


def run_kopi(
    arguments: Sequence[object], folder: Path, environment: Mapping[str, str], *, columns: int = 120
) -> Outcome:
    """Run the command in `folder`. No `KOPI_` variable of the caller is passed on."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KOPI_")}
    variables = own | {"COLUMNS": str(columns)} | environment
    with tempfile.TemporaryDirectory() as output:
        stdout, stderr = Path(output) / "stdout", Path(output) / "stderr"
        words = [str(word) for word in arguments]
        process = _processes.Process(target=_run, args=(words, folder, variables, stdout, stderr))
        process.start()
        process.join(_LIMIT_SECONDS)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"kopi {' '.join(words)}: still running after {_LIMIT_SECONDS:.0f} s")
        return Outcome(process.exitcode, stdout.read_text("utf-8"), stderr.read_text("utf-8"))


def _run(words: list[str], folder: Path, variables: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    for path, stream in ((stdout, 1), (stderr, 2)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", encoding="utf-8") for stream in (1, 2))
    sys.argv = ["kopi", *words]
    runpy.run_module("kopitiam", run_name="__main__", alter_sys=False)

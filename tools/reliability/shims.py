"""Small libraries in C that are loaded into processes of the product by LD_PRELOAD."""

import shutil
import subprocess
from pathlib import Path

from debian import can_install, install, skip_or_fail


def compiled(name: str, folder: Path) -> Path:
    """The library made of `name`.c of this package; skips where there is no compiler."""
    if shutil.which("cc") is None and can_install():
        install("gcc", "libc6-dev", is_there=lambda: shutil.which("cc") is not None)
    if shutil.which("cc") is None:
        skip_or_fail(f"there is no C compiler for {name}.c")
    library, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        skip_or_fail(f"{name}.c does not compile: {done.stderr.strip()[:200]}")
    return library

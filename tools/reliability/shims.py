"""C shims for LD_PRELOAD, compiled when they are needed."""

import shutil
import subprocess
from pathlib import Path

from debian import can_install, install, skip_or_fail


def compile_shim(name: str, folder: Path) -> Path:
    """Compiles `name`.c of this package into a library for LD_PRELOAD; skips if there is no C compiler."""
    if shutil.which("cc") is None and can_install():
        install("gcc", "libc6-dev", is_there=lambda: shutil.which("cc") is not None)
    if shutil.which("cc") is None:
        skip_or_fail(f"there is no C compiler for {name}.c")
    library, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        skip_or_fail(f"{name}.c does not compile: {completed.stderr.strip()[:200]}")
    return library

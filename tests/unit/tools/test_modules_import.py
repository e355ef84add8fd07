"""Every module of tools/ can be imported, and importing one starts nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
# As in `make reliability`; kopitiam_chaos is installed as a package of its own.
PATHS = [ROOT, ROOT / "tools", *(ROOT / "tests" / folder for folder in (".", "acceptance", "chaos", "hosts"))]
IMPORT_ALL = """
import importlib, json, sys
import psutil
failures = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        failures[name] = f"{type(error).__name__}: {error}"
print(json.dumps([failures, [child.name() for child in psutil.Process().children()]]))
"""


def modules_of(package: str) -> list[str]:
    root = ROOT / "tools" if package == "kopitiam_chaos" else ROOT
    files = sorted((root / package.replace(".", "/")).rglob("*.py"))
    names = [".".join(file.relative_to(root).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("package", ["kopitiam_chaos", "tools.benchmarks", "tools.reliability"])
def test_every_module_is_imported_without_side_effects(tmp_path, package):
    names = modules_of(package)
    assert len(names) > 5

    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *names],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [ROOT / "src", *PATHS]))},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    failures, processes = json.loads(done.stdout)  # and nothing else is printed
    assert failures == {}
    assert processes == []
    assert list(tmp_path.iterdir()) == []

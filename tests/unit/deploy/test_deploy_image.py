"""The image: its files, its user, and the processes that its entrypoint starts."""

import json
import os
import re
import subprocess
import tomllib
from io import BytesIO
from itertools import takewhile

import pytest
from deployments import DEPLOY, parse_kopi
from dockerfile_parse import DockerfileParser

ROOT = DEPLOY.parent


@pytest.fixture(scope="module")
def stages():
    """Instructions by the name of their stage, in order."""
    parser = DockerfileParser(fileobj=BytesIO((DEPLOY / "Dockerfile").read_bytes()))
    stages = {}
    for instruction in parser.structure:
        if instruction["instruction"] == "FROM":
            name = instruction["value"].split()[-1]
            stages[name] = []
        if instruction["instruction"] != "COMMENT":
            stages[name].append((instruction["instruction"], instruction["value"]))
    return stages


def values(stage, instruction):
    return [value for name, value in stage if name == instruction]


def test_images_of_nodes_and_monitors_have_no_build_tools(stages):
    assert list(stages) == ["build", "runtime", "monitor", "node"]
    assert values(stages["runtime"], "FROM") == ["python:3.11-slim-trixie AS runtime"]
    assert {values(stages[name], "FROM")[0].split()[0] for name in ("monitor", "node")} == {"runtime"}
    for name in ("runtime", "monitor", "node"):
        runs = " ".join(values(stages[name], "RUN"))
        assert not {"pip", "gcc", "build-essential", "make", "git"} & set(runs.split()), name


def test_images_are_named_without_a_registry(stages):
    bases = {values(stage, "FROM")[0].split()[0] for stage in stages.values()} - set(stages)
    assert all("/" not in base and ":" in base for base in bases)


def test_dependencies_are_installed_by_hash_before_the_package(stages):
    installs = [line for line in values(stages["build"], "RUN") if "pip install" in line]
    assert installs == [
        "pip install --require-hashes --requirement requirements.txt",
        "pip install --no-deps --no-build-isolation .",
    ]


def test_every_copied_file_exists_and_is_in_the_build_context(stages):
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    for stage in stages.values():
        for copy in values(stage, "COPY"):
            words = copy.split()
            if any(word.startswith("--from=") for word in words):
                continue
            sources = [word for word in words if not word.startswith("--")][:-1]
            assert all((ROOT / source).exists() for source in sources), copy
            assert set(sources) <= allowed, copy


def test_linked_folders_and_packages_of_the_project_exist(stages):
    links = [line for line in values(stages["build"], "RUN") if "ln -s" in line]
    folders = re.findall(r"\$packages/(kopitiam/[\w/]+)", " ".join(links))
    assert folders
    assert all((ROOT / "src" / folder).is_dir() for folder in folders)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert packages["packages"]["find"]["where"] == ["src", "tools"]
    assert {"src ./src", "tools/kopitiam_chaos ./tools/kopitiam_chaos"} <= set(
        values(stages["build"], "COPY")
    )


def test_no_stage_ends_as_root_and_the_user_is_numeric_for_kubernetes(stages):
    assert values(stages["runtime"], "USER") == ["10001:10001"]
    assert values(stages["monitor"], "USER") == ["root", "10001:10001"]
    assert values(stages["node"], "USER") == []


def test_containers_are_stopped_with_sigterm(stages):
    assert values(stages["runtime"], "STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(values(stages["runtime"], "ENTRYPOINT")[0]) == ["tini", "--", "entrypoint"]


@pytest.mark.parametrize(("stage", "command"), [("node", "gateway"), ("monitor", "monitor")])
def test_an_image_runs_a_command_of_kopi_and_has_a_health_check(stages, stage, command):
    name, arguments = parse_kopi(json.loads(values(stages[stage], "CMD")[0]))
    assert (name, arguments["name"]) == (command, f"{command}-1")
    words = values(stages[stage], "HEALTHCHECK")[0].split("CMD")
    flags = dict(flag.lstrip("-").split("=") for flag in words[0].split())
    assert flags.keys() == {"interval", "timeout", "start-period", "retries"}
    check = json.loads(words[1])
    assert "/healthz" in check[-1] if command == "gateway" else check == ["entrypoint", "alive", "monitor-1"]


def stub(folder, name, code):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{code}\n", encoding="utf-8")
    path.chmod(0o755)


def enter(tmp_path, *words, **environment):
    """Runs the entrypoint with programs that print how they were called."""
    for name in ("kopi", "spark-class"):
        if not (tmp_path / name).exists():
            stub(tmp_path, name, f'printf "%s\\n" {name} "$@"')
    stub(tmp_path / "java" / "bin", "java", 'printf "%s\\n" "$@"; pwd >&2')
    known = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JAVA_HOME": str(tmp_path / "java")}
    command = ["bash", DEPLOY / "entrypoint.sh", *words]
    return subprocess.run(command, env=known | environment, capture_output=True, text=True, check=False)


def test_the_entrypoint_runs_kopi_by_default(tmp_path):
    assert enter(tmp_path, "gateway", "--name", "a b").stdout.splitlines() == [
        "kopi",
        "gateway",
        "--name",
        "a b",
    ]


@pytest.mark.parametrize(
    ("word", "role"), [("spark-master", "master.Master"), ("spark-worker", "worker.Worker")]
)
def test_the_entrypoint_starts_a_master_or_worker_of_standalone_spark(tmp_path, word, role):
    printed = enter(tmp_path, word, "--port", "7077").stdout.splitlines()
    assert printed == ["spark-class", f"org.apache.spark.deploy.{role}", "--port", "7077"]


def test_the_entrypoint_starts_an_executor_of_spark_on_kubernetes(tmp_path):
    variables = {
        "SPARK_HOME": "/spark",
        "SPARK_CONF_DIR": "/conf",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-7",
    } | {f"SPARK_JAVA_OPT_{number}": f"-D{number}=a b" for number in range(11)}

    done = enter(tmp_path, "executor", **variables)

    printed = done.stdout.splitlines()
    assert done.stderr == "/tmp\n", "not in the home, which all executors share"
    options = list(takewhile(lambda word: word.startswith("-D"), printed))
    assert options == [f"-D{number}=a b" for number in range(11)]
    assert printed[11:15] == ["-Xms2g", "-Xmx2g", "-cp", "/conf:/spark/jars/*"]
    assert printed[15] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    flags = dict(zip(printed[16::2], printed[17::2], strict=True))
    assert flags == {
        "--driver-url": "spark://driver",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "app",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "exec-7",
    }


def test_an_executor_without_its_variables_fails_at_once(tmp_path):
    assert enter(tmp_path, "executor", SPARK_HOME="/spark").returncode != 0


@pytest.mark.parametrize(("state", "code"), [("alive", 0), ("dead", 1), ("stopped", 1)])
def test_the_entrypoint_checks_that_a_node_is_alive(tmp_path, state, code):
    shown = json.dumps({"name": "monitor-1", "state": state}, indent=2)
    stub(tmp_path, "kopi", f"echo '{shown}'; echo \"$@\" > {tmp_path}/arguments")
    assert enter(tmp_path, "alive", "monitor-1").returncode == code
    arguments = (tmp_path / "arguments").read_text(encoding="utf-8").split()
    assert parse_kopi(arguments) == (
        "node status",
        parse_kopi(["node", "status", "monitor-1", "--config", "/etc/kopitiam/kopitiam.toml", "--json"])[1],
    )

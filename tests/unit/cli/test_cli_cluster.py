"""`kopi node` and `kopi cluster` on the command line."""

import json

import pytest

from kopi_command import run_kopi

pytestmark = pytest.mark.slow


@pytest.fixture
def kopi(tmp_path):
    def kopi(*arguments):
        return run_kopi(arguments, tmp_path, {"KOPI_HOME": str(tmp_path / "home")})

    return kopi


def test_a_fleet_on_the_memory_bus_gives_exit_code_2_and_one_line(kopi, tmp_path):
    complaint = "kopi: bus.url: a fleet needs amqp://…, or rabbitmq among nodes.services\n"
    assert kopi("cluster", "up") == (2, "", complaint)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("command", ["start", "stop", "status"])
def test_an_unknown_node_gives_exit_code_2_and_one_line(kopi, command):
    code, stdout, stderr = kopi("node", command, "gateway-9")
    assert (code, stdout, stderr.count("\n")) == (2, "", 1)
    assert stderr.startswith("kopi: gateway-9: no such node; there are gateway-1")


def test_status_as_json_lists_the_documented_fields(kopi):
    code, stdout, stderr = kopi("cluster", "status", "--json")
    assert (code, stderr) == (0, "")
    nodes = json.loads(stdout)
    assert [node["name"] for node in nodes] == [
        "gateway-1", "pipeline-1", "monitor-1", "monitor-2", "monitor-3"
    ]  # fmt: skip
    assert json.loads(kopi("node", "status", "gateway-1", "--json")[1]) == nodes[0]
    documented = {"name", "kind", "host", "pid", "url", "state", "since", "epoch", "leader"}
    assert set(nodes[0]) == documented | {"memory_bytes"}


def test_stopping_a_fleet_or_node_that_is_not_running_succeeds(kopi):
    assert kopi("cluster", "down") == (0, "nothing is running\n", "")
    assert kopi("cluster", "down", "--json") == (0, '{"stopped": []}\n', "")
    assert kopi("node", "stop", "gateway-1") == (0, "gateway-1 does not run\n", "")


@pytest.mark.parametrize(
    ("command", "example"),
    [
        (("node", "start"), "kopi node start gateway-1 --config fleet.toml"),
        (("cluster", "up"), "kopi cluster up --config fleet.toml"),
        (("cluster", "status"), "kopi cluster status --config fleet.toml --json"),
    ],
)
def test_help_shows_examples(kopi, command, example):
    code, stdout, _ = kopi(*command, "--help")
    assert code == 0
    assert example in stdout

"""The status of nodes, from registry records and local processes; starting and stopping a whole fleet."""

import contextlib
import http.server
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest

from kopitiam.contracts.config import GatewaySection, NodesSection
from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.contracts.messages import NodeRecord
from kopitiam.fleet import lifecycle
from kopitiam.fleet.cluster import await_ready, down, up
from kopitiam.fleet.lifecycle import Fleet, stop_node
from kopitiam.fleet.processes import launch
from kopitiam.fleet.services.base import write_url
from kopitiam.fleet.status import fleet_status
from kopitiam.registry import open_registry
from kopitiam.system.settings import load_settings
from waiting import eventually

pytestmark = pytest.mark.slow

NODES = NodesSection(monitors=("monitor-1", "monitor-2"))
ALIVE = NodeRecord("pipeline-1", "pipeline", 1, None, "alive", 1000.5, 3, host="h1")


@pytest.fixture
def fleet(settings):
    return Fleet(settings.model_copy(update={"nodes": NODES}))


@pytest.fixture
def registry(settings):
    with contextlib.closing(open_registry("sqlite", settings.home)) as registry:
        yield registry


@pytest.fixture
def gateway_url():
    """The URL of a server whose `/readyz` answers 200."""

    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def status_of(fleet, name="pipeline-1"):
    [status] = fleet_status(fleet, [name])
    return status.to_dict()


def test_a_fleet_that_was_never_up_is_stopped_and_reading_its_status_creates_no_files(fleet, home):
    assert {(node.name, node.state, node.pid) for node in fleet_status(fleet)} == {
        (name, "stopped", None) for name in ("gateway-1", "pipeline-1", "monitor-1", "monitor-2")
    }
    assert not home.path.exists()


def test_a_local_node_has_the_status_in_the_registry(fleet, home, program, registry):
    pid = launch(home, program()).pid
    registry.report_node(replace(ALIVE, pid=pid))
    shown = status_of(fleet)
    assert shown.pop("memory_bytes") > 0
    assert shown == {
        "name": "pipeline-1",
        "kind": "pipeline",
        "host": "h1",
        "pid": pid,
        "url": None,
        "state": "alive",
        "since": 1000.5,
        "epoch": 3,
        "leader": False,
    }


def test_a_new_process_is_starting_until_the_registry_has_its_record(fleet, home, program, registry):
    pid = launch(home, program()).pid
    assert status_of(fleet)["state"] == "starting"
    registry.report_node(ALIVE)  # an earlier process
    assert (status_of(fleet)["state"], status_of(fleet)["pid"]) == ("starting", pid)
    registry.report_node(replace(ALIVE, pid=pid, host="h2"))  # a process of another machine
    assert status_of(fleet)["state"] == "starting"


def test_a_missing_or_frozen_process_is_dead_whatever_the_registry_records(fleet, home, program, registry):
    launched = launch(home, program())
    registry.report_node(replace(ALIVE, pid=launched.pid))
    launched.child.send_signal(signal.SIGSTOP)
    eventually(lambda: status_of(fleet)["state"] != "alive")
    assert (status_of(fleet)["state"], status_of(fleet)["pid"]) == ("dead", launched.pid)
    launched.child.kill()
    launched.child.wait()
    assert (status_of(fleet)["state"], status_of(fleet)["pid"]) == ("dead", None)


def test_without_a_registry_the_status_is_that_of_the_processes(fleet, home, program):
    launched = launch(home, program())
    assert status_of(fleet)["state"] == "alive"
    launched.child.kill()
    launched.child.wait()
    assert status_of(fleet)["state"] == "dead"


def test_a_node_on_another_machine_has_the_status_in_the_registry(fleet, registry):
    registry.report_node(ALIVE)
    assert (status_of(fleet)["state"], status_of(fleet)["pid"]) == ("alive", 1)
    registry.report_node(replace(ALIVE, state="stopped"))
    assert (status_of(fleet)["state"], status_of(fleet)["pid"]) == ("stopped", None)


def test_a_dead_leader_is_not_shown_as_leader(fleet, home, program, registry):
    launched = launch(home, program(name="monitor-1"))
    leader = NodeRecord("monitor-1", "monitor", launched.pid, None, "alive", 1000.5, 1, leader=True)
    registry.report_node(leader)
    assert status_of(fleet, "monitor-1")["leader"]
    launched.child.kill()
    launched.child.wait()
    assert not status_of(fleet, "monitor-1")["leader"]


def test_a_service_is_shown_without_its_credentials(settings, home):
    fleet = Fleet(settings.model_copy(update={"nodes": NodesSection(services=("rabbitmq",))}))
    write_url(home.service("rabbitmq"), "amqp://kopitiam:secret@127.0.0.1:1")
    assert status_of(fleet, "rabbitmq") == {
        "name": "rabbitmq",
        "kind": "service",
        "host": "h1",
        "pid": None,
        "url": "amqp://127.0.0.1:1",
        "state": "stopped",
        "since": None,
        "epoch": None,
        "leader": False,
        "memory_bytes": 0,
    }


def test_the_memory_of_a_node_is_reported(fleet, home, program):
    launch(home, program())
    [status] = fleet_status(fleet, ["pipeline-1"])
    assert status.memory_bytes > 1_000_000


def test_stopping_a_node_records_it_as_stopped(fleet, home, program, registry):
    launched = launch(home, program())
    registry.report_node(replace(ALIVE, pid=launched.pid, leader=True))
    assert stop_node(fleet, "pipeline-1")
    [record] = registry.nodes()
    assert (record.state, record.pid, record.leader, record.epoch) == ("stopped", None, False, 3)
    assert not stop_node(fleet, "pipeline-1")


def test_down_stops_monitors_first_and_removes_all_records(fleet, home, program, registry, tmp_path):
    order = tmp_path / "order"
    code = f"""
import signal, sys, time
def on_sigterm(*_):
    with open({str(order)!r}, "a") as file:
        file.write(sys.argv[1] + "\\n")
    sys.exit()
signal.signal(signal.SIGTERM, on_sigterm)
print("ready", flush=True)
time.sleep(60)
"""
    for name in ("gateway-1", "pipeline-1", "monitor-1", "monitor-2"):
        node = program(name=name)
        launch(home, replace(node, command=lambda name=name: (sys.executable, "-c", code, name)))
        registry.report_node(NodeRecord(name, node.kind, 1, None, "alive", 1.0, 1))
        eventually(lambda name=name: b"ready" in home.log(name).read_bytes())
    assert down(fleet) == ["monitor-1", "monitor-2", "gateway-1", "pipeline-1"]
    assert sorted(order.read_text().split()[:2]) == ["monitor-1", "monitor-2"]
    assert order.read_text().split()[2:] == ["gateway-1", "pipeline-1"]
    assert {node.state for node in registry.nodes()} == {"stopped"}
    assert not home.nodes.exists()
    assert down(fleet) == []


def test_down_stops_nodes_that_are_no_longer_in_the_settings(fleet, home, program):
    launched = launch(home, program(name="gateway-7"))
    assert down(fleet) == ["gateway-7"]
    assert launched.child.wait() == -signal.SIGTERM


def test_down_handles_dead_frozen_and_unreadable_nodes(fleet, home, program):
    dead, frozen = launch(home, program()), launch(home, program(name="monitor-1"))
    dead.child.kill()
    dead.child.wait()
    frozen.child.send_signal(signal.SIGSTOP)
    home.record("gateway-1").write_text("{")
    assert down(fleet) == ["monitor-1"]
    assert not home.nodes.exists()


def test_a_fleet_is_ready_when_all_nodes_are_alive_one_leads_and_gateways_accept_runs(
    fleet, home, program, registry, gateway_url
):
    listening = GatewaySection(listen=gateway_url.removeprefix("http://"))
    fleet = Fleet(fleet.settings.model_copy(update={"gateway": listening}))
    launched = [launch(home, program(name=name)) for name in ("gateway-1", "monitor-1")]
    gateway = NodeRecord("gateway-1", "gateway", launched[0].pid, gateway_url, "alive", 1.0, 1, host="h1")
    monitor = NodeRecord("monitor-1", "monitor", launched[1].pid, None, "alive", 1.0, 1)
    missing_names = []

    def on_wait(missing):
        missing_names.append(missing)
        reports = [replace(gateway, pid=1), replace(gateway, host="h2"), gateway, monitor]
        reports += [replace(monitor, leader=True)]
        registry.report_node(reports[min(len(missing_names), len(reports)) - 1])

    await_ready(fleet, registry, launched, time.monotonic() + 60, on_wait)
    leaderless = ["a monitor that leads"]
    both = ["gateway-1", "monitor-1"]
    assert missing_names == [both, both, both, ["monitor-1"], leaderless, []]


def test_nodes_not_ready_in_time_are_listed_with_their_last_log_line(fleet, home, program, registry):
    launched = launch(home, program("print('waiting for a lock', flush=True); import time; time.sleep(60)"))
    eventually(lambda: b"lock" in home.log("pipeline-1").read_bytes())
    with pytest.raises(ServiceError, match=r"^not ready in time: pipeline-1: waiting for a lock$"):
        await_ready(fleet, registry, [launched], time.monotonic(), lambda _: None)


def test_a_node_that_ends_while_the_fleet_starts_raises_its_error(fleet, home, program, registry):
    launched = [launch(home, program()), launch(home, program("raise SystemExit(2)", name="gateway-1"))]
    with pytest.raises(ConfigError, match=r"^gateway-1: ended with exit code 2"):
        await_ready(fleet, registry, launched, time.monotonic() + 60, lambda _: None)


@pytest.fixture
def broken_fleet(home, tmp_path):
    """A fleet whose settings pass the checks, but whose nodes exit with a config error."""
    config = tmp_path / "fleet.toml"
    config.write_text(
        f'home = "{home.path}"\nbus.url = "amqp://"\n'
        '[nodes]\ngateways = []\npipelines = {}\nmonitors = ["monitor-1"]\n'
    )
    return Fleet(load_settings(config), config)


def test_a_fleet_is_stopped_again_if_one_node_fails_to_start(broken_fleet, home):
    with pytest.raises(ConfigError, match=r"^monitor-1: ended with exit code 2: kopi: bus.url: no host"):
        up(broken_fleet)
    assert not home.nodes.exists()


def test_starting_a_node_that_exits_at_once_raises_its_error(broken_fleet, monkeypatch):
    monkeypatch.setattr(lifecycle, "START_SECONDS", 60)
    with pytest.raises(ConfigError, match=r"^monitor-1: ended with exit code 2: kopi: bus.url: no host"):
        lifecycle.start_node(broken_fleet, "monitor-1")
    assert status_of(broken_fleet, "monitor-1")["state"] == "dead"

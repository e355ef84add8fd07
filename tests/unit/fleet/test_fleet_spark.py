"""Spark standalone as services of a fleet: their commands, and the settings of pipelines."""

import contextlib
import json
import socket
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopitiam.contracts.config import NodesSection, PipelineSection, SparkSection
from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.fleet import preflight
from kopitiam.fleet.preflight import check_free_cores, check_settings
from kopitiam.fleet.services import find_service, in_start_order, probes, service_settings, services_of, spark
from kopitiam.fleet.services.base import read_url, without_credentials, write_url
from kopitiam.fleet.services.spark import Address, SparkMaster, forgotten_by_master, spark_home

SECRET = "f00d"
MASTER = Address(12345, 12346, SECRET)
SERVICES = ("spark-master", "spark-worker-1", "spark-worker-2")


def worker(cores, state="ALIVE"):
    return {"coresfree": cores, "state": state}


@pytest.fixture
def cluster(settings):
    """A master, two workers, two pipelines."""
    nodes = NodesSection(services=SERVICES, pipelines={"p-1": (0,), "p-2": (1,)})
    return settings.model_copy(update={"nodes": nodes, "pipeline": PipelineSection(shards=2)})


@pytest.fixture
def known(home):
    """The master has been started once."""
    write_url(home.service("spark-master"), MASTER.url)


@pytest.fixture
def command_of(cluster, monkeypatch):
    """Returns the command of a service and the lines of its properties file, without running it."""

    def command_and_properties(name):
        programs = []

        def launch(_home, program):
            programs.append(program)
            return SimpleNamespace(wait_until_ready=lambda _is_ready, _seconds: None, child=None)

        monkeypatch.setattr(spark, "launch", launch)
        find_service(name, cluster).start()
        command = programs[0].command()
        properties = Path(command[command.index("--properties-file") + 1])
        return command, properties.read_text().splitlines()

    return command_and_properties


def test_an_address_survives_a_round_trip_through_its_url():
    for address in (MASTER, Address(1, 2)):
        assert Address.of(address.url) == address
    assert without_credentials(MASTER.url) == MASTER.master == "spark://127.0.0.1:12345"


def test_services_start_after_their_dependencies_and_workers_by_number():
    names = ("spark-worker-10", "spark-worker-9", "spark-master", "rabbitmq", "postgresql")
    assert in_start_order(names) == [
        "postgresql",
        "rabbitmq",
        "spark-master",
        "spark-worker-9",
        "spark-worker-10",
    ]


def test_worker_names_end_in_a_number(cluster):
    assert [service.name for service in services_of(cluster)] == list(SERVICES)
    for name in ("spark-worker", "spark-worker-0", "spark-worker-1x", "spark-slave-1"):
        with pytest.raises(ConfigError, match=f"{name} is not one of"):
            find_service(name, cluster)


def test_the_secret_is_chosen_once_and_only_in_files_of_its_owner(command_of, home):
    command, _ = command_of("spark-master")
    folder = home.service("spark-master")
    chosen = read_url(folder)
    secret = Address.of(chosen).secret
    assert len(secret) == 64
    again, lines = command_of("spark-master")
    assert (read_url(folder), again) == (chosen, command)
    assert f"spark.authenticate.secret={secret}" in lines
    worker, lines = command_of("spark-worker-1")
    assert f"spark.authenticate.secret={secret}" in lines
    assert not [word for word in (*command, *worker) if secret in word]
    for name in ("spark-master", "spark-worker-1"):
        for file in ("address.json", "spark.properties"):
            assert stat.S_IMODE((home.service(name) / file).stat().st_mode) == 0o600


def test_a_master_listens_on_loopback_requires_authentication_and_recovers_its_state(command_of, home):
    command, lines = command_of("spark-master")
    address = Address.of(read_url(home.service("spark-master")))
    arguments = " ".join(command)
    assert f"--host 127.0.0.1 --port {address.port} --webui-port {address.webui_port}" in arguments
    assert {"SPARK_LOCAL_IP=127.0.0.1", f"SPARK_HOME={spark_home()}", "-Xmx256m"} <= set(command)
    assert {
        "spark.authenticate=true",
        "spark.network.crypto.enabled=true",
        "spark.network.crypto.saslFallback=false",
        "spark.master.rest.enabled=false",
        "spark.deploy.recoveryMode=FILESYSTEM",
        f"spark.deploy.recoveryDirectory={home.service('spark-master')}/recovery",
        "spark.port.maxRetries=0",
    } <= set(lines)


@pytest.mark.usefixtures("known")
def test_a_worker_is_limited_to_its_cores_memory_and_folder(command_of, home):
    command, lines = command_of("spark-worker-2")
    folder = home.service("spark-worker-2")
    arguments = " ".join(command)
    assert f"--cores 2 --memory 2048m --work-dir {folder}/work spark://127.0.0.1:12345" in arguments
    assert {f"-Djava.io.tmpdir={folder}/scratch", f"SPARK_LOCAL_DIRS={folder}/scratch"} <= set(command)
    assert "SPARK_SCALA_VERSION=2.13" in command  # without it no executor would start
    assert "spark.worker.cleanup.enabled=true" in lines


def test_starting_a_worker_before_its_master_raises_a_service_error(command_of):
    with pytest.raises(ServiceError, match=r"^spark-master: not started yet"):
        command_of("spark-worker-1")


@pytest.mark.usefixtures("known")
def test_pipelines_get_the_master_url_and_equal_shares_of_its_resources(cluster):
    filled = service_settings(cluster).spark
    assert filled.master == "spark://127.0.0.1:12345"
    assert filled.conf["spark.authenticate.secret"] == SECRET
    assert filled.conf["spark.network.crypto.enabled"] == "true"
    assert filled.conf["spark.driver.host"] == "127.0.0.1"
    assert (filled.conf["spark.cores.max"], filled.conf["spark.executor.memory"]) == ("2", "1024m")


@pytest.mark.usefixtures("known")
def test_a_single_pipeline_may_use_workers_that_are_added_while_it_runs(cluster):
    nodes = cluster.nodes.model_copy(update={"pipelines": {"pipeline-1": (0, 1)}})
    filled = service_settings(cluster.model_copy(update={"nodes": nodes})).spark
    assert "spark.cores.max" not in filled.conf
    assert filled.conf["spark.executor.memory"] == "2048m"


@pytest.mark.usefixtures("known")
def test_spark_settings_of_the_file_are_kept(cluster):
    own = SparkSection(conf={"spark.cores.max": "1", "spark.x": "y"})
    filled = service_settings(cluster.model_copy(update={"spark": own})).spark
    assert (filled.conf["spark.cores.max"], filled.conf["spark.x"]) == ("1", "y")
    elsewhere = SparkSection(master="spark://elsewhere:7077")
    changed = cluster.model_copy(update={"spark": elsewhere})
    assert service_settings(changed).spark == elsewhere


@pytest.mark.parametrize(
    ("services", "complaint"),
    [
        (("spark-worker-1",), "nodes.services: spark-worker-1 needs spark-master"),
        (("spark-master",), "nodes.services: spark-master needs spark-worker-1"),
    ],
)
def test_a_master_without_workers_or_workers_without_a_master_are_refused(settings, services, complaint):
    nodes = NodesSection(services=("rabbitmq", *services))
    with pytest.raises(ConfigError, match=f"^{complaint}$"):
        check_settings(settings.model_copy(update={"nodes": nodes}))


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({"worker_cores": 1}, "spark.worker_cores: 3 pipelines need a core each, there are 2"),
        ({"worker_memory": "1g"}, "spark.worker_memory: 3 pipelines need at least 1536m, got 1g"),
    ],
)
def test_a_cluster_too_small_for_its_pipelines_is_refused(cluster, limits, complaint):
    pipelines = {"p-1": (0,), "p-2": (1,), "p-3": (2,)}
    nodes = NodesSection(services=("rabbitmq", *SERVICES), pipelines=pipelines)
    three_pipelines = cluster.model_copy(update={"nodes": nodes, "pipeline": PipelineSection(shards=3)})
    check_settings(three_pipelines)
    with pytest.raises(ConfigError, match=f"^{complaint}$"):
        check_settings(three_pipelines.model_copy(update={"spark": SparkSection(**limits)}))


@pytest.mark.parametrize(
    ("answer", "is_alive"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"status" : "ALIVE"}', True),
        (b"HTTP/1.1 500 Server Error\r\n\r\n", False),
        (b"\x00\x00", False),
        (b"", False),
    ],
)
def test_the_probe_of_a_master_succeeds_if_it_reports_its_status(cluster, home, answer, is_alive):
    with answering(home, answer):
        assert probes(cluster)["spark-master"]() is is_alive


@pytest.mark.parametrize(
    ("status", "cores"),
    [
        ({"workers": [worker(1), worker(2), worker(2, "DEAD")]}, 3),
        ({"workers": []}, 0),
        ({"status": "STANDBY"}, 0),
        ("", 0),
    ],
)
def test_free_cores_are_those_of_live_workers(cluster, home, status, cores):
    with answering(home, b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(status).encode()):
        assert SparkMaster(cluster).free_cores() == cores


@pytest.mark.parametrize(
    ("status", "is_forgotten"),
    [
        ({"status": "ALIVE", "activeapps": []}, True),
        ({"status": "ALIVE", "activeapps": [{"id": "app-2"}]}, True),
        ({"status": "ALIVE", "activeapps": [{"id": "app-1"}]}, False),
        ({"status": "RECOVERING", "activeapps": []}, False),
        ("", False),
    ],
)
def test_a_master_that_works_without_an_application_has_forgotten_it(cluster, home, status, is_forgotten):
    with answering(home, b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(status).encode()):
        assert forgotten_by_master(service_settings(cluster))("app-1") is is_forgotten


@pytest.mark.usefixtures("known")
def test_nothing_is_known_of_a_master_that_does_not_answer_or_is_another_one(cluster):
    assert SparkMaster(cluster).free_cores() == 0
    assert not forgotten_by_master(service_settings(cluster))("app-1")
    elsewhere = cluster.model_copy(update={"spark": SparkSection(master="spark://elsewhere:7077")})
    assert not forgotten_by_master(elsewhere)("app-1")
    assert not forgotten_by_master(elsewhere.model_copy(update={"nodes": NodesSection()}))("app-1")


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("added", "free", "is_enough"),
    [
        ((), 0, True),
        (("p-2",), 0, False),
        (("p-2",), 1, True),
        (("p-1", "p-2"), 2, False),
        (("p-1", "p-2"), 3, True),
    ],
)
def test_added_pipelines_are_refused_without_enough_free_cores(cluster, monkeypatch, added, free, is_enough):
    """Each pipeline may take two cores."""
    monkeypatch.setattr(SparkMaster, "free_cores", lambda _: free)
    filled = service_settings(cluster)
    if is_enough:
        check_free_cores(added, filled, patience_seconds=0)
    else:
        complaint = rf"^{', '.join(added)}: Spark has {free} free cores, .* add a spark-worker to nodes"
        with pytest.raises(ConfigError, match=complaint):
            check_free_cores(added, filled, patience_seconds=0)


@pytest.mark.usefixtures("known")
def test_the_check_waits_for_cores_to_become_free(cluster, monkeypatch):
    polls = iter((0, 0, 1))
    monkeypatch.setattr(SparkMaster, "free_cores", lambda _: next(polls))
    monkeypatch.setattr(preflight, "_POLL_SECONDS", 0)
    check_free_cores(("p-2",), service_settings(cluster), patience_seconds=60)
    assert next(polls, None) is None, "it polled until a core was free"


@pytest.mark.usefixtures("known")
def test_free_cores_of_an_external_spark_are_not_checked(cluster, monkeypatch):
    polls = []
    monkeypatch.setattr(SparkMaster, "free_cores", lambda _: polls.append(0) or 0)
    elsewhere = cluster.model_copy(update={"spark": SparkSection(master="spark://elsewhere:7077")})
    check_free_cores(("p-2",), service_settings(elsewhere), patience_seconds=0)
    assert polls == []


@contextlib.contextmanager
def answering(home, answer):
    """A master that sends this reply to the first connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply():
            client = listening.accept()[0]
            client.recv(4096)
            client.sendall(answer)
            client.close()

        thread = threading.Thread(target=reply)
        thread.start()
        write_url(home.service("spark-master"), Address(1, listening.getsockname()[1], SECRET).url)
        yield
        thread.join()

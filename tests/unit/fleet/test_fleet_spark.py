"""Spark standalone as services of a fleet: what they are started with, and what pipelines are told."""

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
from kopitiam.fleet.services.spark import Address, SparkMaster, spark_home

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
    """What a service would be run with, and the lines of its properties file."""

    def made(name):
        programs = []

        def launch(_home, program):
            programs.append(program)
            return SimpleNamespace(wait_until_ready=lambda _is_ready, _seconds: None, child=None)

        monkeypatch.setattr(spark, "launch", launch)
        find_service(name, cluster).start()
        command = programs[0].command()
        properties = Path(command[command.index("--properties-file") + 1])
        return command, properties.read_text().splitlines()

    return made


def test_an_address_is_the_same_when_it_is_read_again():
    for address in (MASTER, Address(1, 2)):
        assert Address.of(address.url) == address
    assert without_credentials(MASTER.url) == MASTER.master == "spark://127.0.0.1:12345"


def test_services_start_before_those_that_need_them_and_workers_by_number():
    names = ("spark-worker-10", "spark-worker-9", "spark-master", "rabbitmq", "postgresql")
    assert in_start_order(names) == [
        "postgresql",
        "rabbitmq",
        "spark-master",
        "spark-worker-9",
        "spark-worker-10",
    ]


def test_workers_are_known_by_their_number(cluster):
    assert [service.name for service in services_of(cluster)] == list(SERVICES)
    for name in ("spark-worker", "spark-worker-0", "spark-worker-1x", "spark-slave-1"):
        with pytest.raises(ConfigError, match=f"{name} is not one of"):
            find_service(name, cluster)


def test_a_secret_is_chosen_once_and_seen_in_files_of_its_owner_only(command_of, home):
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


def test_a_master_is_private_protected_and_remembers(command_of, home):
    command, lines = command_of("spark-master")
    address = Address.of(read_url(home.service("spark-master")))
    words = " ".join(command)
    assert f"--host 127.0.0.1 --port {address.port} --webui-port {address.webui_port}" in words
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
def test_a_worker_keeps_within_its_limits_and_its_folder(command_of, home):
    command, lines = command_of("spark-worker-2")
    folder = home.service("spark-worker-2")
    words = " ".join(command)
    assert f"--cores 2 --memory 2048m --work-dir {folder}/work spark://127.0.0.1:12345" in words
    assert {f"-Djava.io.tmpdir={folder}/scratch", f"SPARK_LOCAL_DIRS={folder}/scratch"} <= set(command)
    assert "SPARK_SCALA_VERSION=2.13" in command  # without it no executor would start
    assert "spark.worker.cleanup.enabled=true" in lines


def test_a_worker_before_its_master_is_told_so(command_of):
    with pytest.raises(ServiceError, match=r"^spark-master: not started yet"):
        command_of("spark-worker-1")


@pytest.mark.usefixtures("known")
def test_pipelines_are_told_where_the_master_is_and_share_what_it_has(cluster):
    filled = service_settings(cluster).spark
    assert filled.master == "spark://127.0.0.1:12345"
    assert filled.conf["spark.authenticate.secret"] == SECRET
    assert filled.conf["spark.network.crypto.enabled"] == "true"
    assert filled.conf["spark.driver.host"] == "127.0.0.1"
    assert (filled.conf["spark.cores.max"], filled.conf["spark.executor.memory"]) == ("2", "1024m")


@pytest.mark.usefixtures("known")
def test_what_the_settings_say_of_spark_is_kept(cluster):
    own = SparkSection(conf={"spark.cores.max": "1", "spark.x": "y"})
    filled = service_settings(cluster.model_copy(update={"spark": own})).spark
    assert (filled.conf["spark.cores.max"], filled.conf["spark.x"]) == ("1", "y")
    elsewhere = SparkSection(master="spark://elsewhere:7077")
    wanted = cluster.model_copy(update={"spark": elsewhere})
    assert service_settings(wanted).spark == elsewhere


@pytest.mark.parametrize(
    ("services", "complaint"),
    [
        (("spark-worker-1",), "nodes.services: spark-worker-1 wants spark-master beside it"),
        (("spark-master",), "nodes.services: spark-master wants spark-worker-1 beside it"),
    ],
)
def test_half_a_spark_is_refused(settings, services, complaint):
    nodes = NodesSection(services=("rabbitmq", *services))
    with pytest.raises(ConfigError, match=f"^{complaint}$"):
        check_settings(settings.model_copy(update={"nodes": nodes}))


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({"worker_cores": 1}, "spark.worker_cores: 3 pipelines want a core each, there are 2"),
        ({"worker_memory": "1g"}, "spark.worker_memory: 3 pipelines want at least 1536m, got 1g"),
    ],
)
def test_a_cluster_with_nothing_left_for_a_pipeline_is_refused(cluster, limits, complaint):
    pipelines = {"p-1": (0,), "p-2": (1,), "p-3": (2,)}
    nodes = NodesSection(services=("rabbitmq", *SERVICES), pipelines=pipelines)
    wanted = cluster.model_copy(update={"nodes": nodes, "pipeline": PipelineSection(shards=3)})
    check_settings(wanted)
    with pytest.raises(ConfigError, match=f"^{complaint}$"):
        check_settings(wanted.model_copy(update={"spark": SparkSection(**limits)}))


@pytest.mark.parametrize(
    ("answer", "is_alive"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"status" : "ALIVE"}', True),
        (b"HTTP/1.1 500 Server Error\r\n\r\n", False),
        (b"\x00\x00", False),
        (b"", False),
    ],
)
def test_a_master_is_alive_when_it_tells_how_it_is(cluster, home, answer, is_alive):
    with answering(home, answer):
        assert probes(cluster)["spark-master"]() is is_alive


@pytest.mark.parametrize(
    ("told", "cores"),
    [
        ({"workers": [worker(1), worker(2), worker(2, "DEAD")]}, 3),
        ({"workers": []}, 0),
        ({"status": "STANDBY"}, 0),
        ("", 0),
    ],
)
def test_free_cores_are_those_of_workers_that_live(cluster, home, told, cores):
    with answering(home, b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(told).encode()):
        assert SparkMaster(cluster).free_cores() == cores


@pytest.mark.usefixtures("known")
def test_a_master_that_is_away_has_no_free_cores(cluster):
    assert SparkMaster(cluster).free_cores() == 0


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("newcomers", "free", "is_enough"),
    [
        ((), 0, True),
        (("p-2",), 0, False),
        (("p-2",), 1, True),
        (("p-1", "p-2"), 2, False),
        (("p-1", "p-2"), 3, True),
    ],
)
def test_a_pipeline_that_would_find_no_core_beside_the_others_is_refused(
    cluster, monkeypatch, newcomers, free, is_enough
):
    """Each may take two."""
    monkeypatch.setattr(SparkMaster, "free_cores", lambda _: free)
    filled = service_settings(cluster)
    if is_enough:
        check_free_cores(newcomers, filled, patience_seconds=0)
    else:
        complaint = rf"^{', '.join(newcomers)}: Spark has {free} free cores, .* add a spark-worker to nodes"
        with pytest.raises(ConfigError, match=complaint):
            check_free_cores(newcomers, filled, patience_seconds=0)


@pytest.mark.usefixtures("known")
def test_cores_that_come_free_in_time_are_waited_for(cluster, monkeypatch):
    looks = iter((0, 0, 1))
    monkeypatch.setattr(SparkMaster, "free_cores", lambda _: next(looks))
    monkeypatch.setattr(preflight, "_POLL_SECONDS", 0)
    check_free_cores(("p-2",), service_settings(cluster), patience_seconds=60)
    assert next(looks, None) is None, "it looked until there was one"


@pytest.mark.usefixtures("known")
def test_cores_of_another_spark_are_none_of_our_business(cluster, monkeypatch):
    looks = []
    monkeypatch.setattr(SparkMaster, "free_cores", lambda _: looks.append(0) or 0)
    elsewhere = cluster.model_copy(update={"spark": SparkSection(master="spark://elsewhere:7077")})
    check_free_cores(("p-2",), service_settings(elsewhere), patience_seconds=0)
    assert looks == []


@contextlib.contextmanager
def answering(home, answer):
    """A master that says this to whoever asks first."""
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

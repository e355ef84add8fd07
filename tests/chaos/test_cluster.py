"""The example cluster, with Spark standalone, on its own home and ports: its answers equal those of one
process, also when services are killed.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from clients import trickling
from fleets import KOPI, Fleet

from kopitiam.bus.private_broker import free_port
from kopitiam.fleet.services import find_service
from kopitiam.fleet.services.base import port_of
from kopitiam.fleet.services.spark import Address
from kopitiam.system.settings import load_settings
from rabbitmq_server import ensure_installed
from sampling import IS_FULL

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.toml"
READY_SECONDS = 120
CHAOS_TARGETS = "spark-worker,spark-master,rabbitmq"
CHAOS_SEED = 260  # each of them once, with short pauses
SPARK = ("spark-master", "spark-worker-1", "spark-worker-2")
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
pytestmark = pytest.mark.full  # machines of their own, in tests/hosts, run the same services in every suite
only_in_full = pytest.mark.skipif(not IS_FULL, reason="only with KOPI_TEST_FULL")


class Cluster(Fleet):
    """The example cluster, optionally with fewer workers and shards."""

    def __init__(self, folder: Path, workers: int = 2, shards: int = 3) -> None:
        super().__init__(folder, ())
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        java = f"{self._environment['JAVA_TOOL_OPTIONS']} -Djava.io.tmpdir={self.temporary}"
        self._environment |= {"TMPDIR": str(self.temporary), "JAVA_TOOL_OPTIONS": java}
        port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        self.urls = [self.url, f"http://127.0.0.1:{port + 1}"]
        changes = {"~/.kopitiam-cluster": str(self.home), "127.0.0.1:8440": f"127.0.0.1:{port}"}
        if shards == 1:
            changes |= {"shards = 3": "shards = 1", '= [0, 1], "pipeline-2" = [2] }': "= [0] }"}
        if workers == 1:
            changes |= {', "spark-worker-2"': ""}
        text = EXAMPLE.read_text(encoding="utf-8")
        for old, new in changes.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        self.config.write_text(f"{text}\n[monitor]\nheartbeat_seconds = 1\n", encoding="utf-8")

    @property
    def secret(self) -> str:
        url = find_service("spark-master", load_settings(self.config)).url()
        assert url is not None
        return Address.of(url).secret

    def ports(self) -> list[int]:
        """The fixed ports; other programs may take the temporary ones afterwards."""
        urls = [str(find_service(name, self.settings).url()) for name in self.settings.nodes.services]
        webuis = [Address.of(url).webui for url in urls if "webui=" in url]
        return [port_of(url) for url in (*self.urls, *urls, *webuis)]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [KOPI, *arguments],
            env={**self._environment, **environment},
            cwd=self.config.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )


@contextlib.contextmanager
def up(cluster: Cluster) -> Iterator[Cluster]:
    try:
        begun = time.monotonic()
        cluster.up()
        cluster.note(f"ready after {time.monotonic() - begun:.0f} s")
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def rabbitmq() -> None:
    ensure_installed()


@pytest.fixture(scope="module")
def cluster(rabbitmq: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with up(Cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def embedded(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The answers of one process."""
    return analyzed(tiny_folder, tmp_path_factory.mktemp("embedded") / "answers")


def test_the_example_starts_and_its_status_lists_all_nodes(cluster: Cluster) -> None:
    nodes = {node["name"]: node for node in cluster.do("cluster", "status")}
    assert {name: node["state"] for name, node in nodes.items()} == dict.fromkeys(cluster.kinds, "alive")
    assert [name for name, node in nodes.items() if node["leader"]] == ["monitor-3"]
    assert all(node["epoch"] for node in nodes.values() if node["kind"] != "service")
    assert [nodes[name]["url"] for name in ("gateway-1", "gateway-2")] == cluster.urls
    shown = cluster.run("cluster", "status", "--config", str(cluster.config)).stdout
    memory = {line.split()[0]: int(megabytes(line)) for line in shown.splitlines() if " MB" in line}
    assert set(memory) == set(cluster.kinds)
    cluster.note(f"memory: {sum(memory.values()):,} MB")


def test_spark_listens_on_loopback_only_and_its_secret_is_in_private_files_only(cluster: Cluster) -> None:
    secret = cluster.secret
    processes = cluster.processes()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert not [word for word in process.cmdline() if secret in word]
            listening = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
            assert {each.laddr.ip for each in listening} <= LOOPBACK, process.cmdline()
    with_secret = {
        path.relative_to(cluster.home).as_posix(): oct(path.stat().st_mode & 0o777)
        for path in cluster.home.rglob("*")
        if path.is_file()
        and not path.is_relative_to(cluster.home / "services" / "postgresql")
        and secret.encode() in path.read_bytes()
    }
    expected = ["address.json", *["spark.properties"] * len(SPARK)]
    assert sorted(Path(name).name for name in with_secret) == expected, with_secret
    assert set(with_secret.values()) == {"0o600"}


def test_the_answers_of_a_cluster_equal_those_of_one_process(
    cluster: Cluster, embedded: dict[str, bytes], tiny_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "answers"
    sent = cluster.run("submit", str(tiny_folder), "--server", cluster.urls[1], "--out", str(out))
    assert sent.returncode == 0, sent.stderr
    assert cluster.run("verify", str(tiny_folder), str(out)).returncode == 0
    assert answers_in(out) == embedded


def test_a_worker_and_a_master_killed_during_a_run_are_revived_and_the_run_continues(
    cluster: Cluster, small_folder: Path, tmp_path: Path
) -> None:
    pids = cluster.pids()
    ports = {name: find_service(name, cluster.settings).url() for name in SPARK}
    with trickling(cluster, small_folder, tmp_path / "answers") as upload:
        for victim in ("spark-worker-1", "spark-master"):
            recovery = cluster.await_recovery(cluster.kill(victim))
            pids[victim] = recovery.pid
            due = upload.sent
            cluster.wait(lambda due=due: cluster.processed(upload.run) >= due, "processing the upload")
    assert cluster.pids() == pids, cluster.status_text()
    assert {name: find_service(name, cluster.settings).url() for name in SPARK} == ports


@only_in_full  # the test above kills a worker and a master, those of the fleet the other services
def test_chaos_among_the_services_leaves_every_answer_exact(cluster: Cluster) -> None:
    report = cluster.do(
        *("chaos", "--seed", str(CHAOS_SEED), "--kills", "3", "--targets", CHAOS_TARGETS),
        *("--clients", "1", "--scale", "0.0001", "--patience", "100"),
    )
    cluster.note(f"chaos took {report['seconds']:.0f} s")
    assert (report["is_exact"], report["complaints"]) == (True, [])
    assert report["runs"]["verified"] == report["runs"]["made"] >= 1
    struck = {each["name"]: each["is_replaced"] for each in report["timeline"]}
    assert struck == {"spark-master": True, "spark-worker-2": True, "rabbitmq": True}


def test_a_pipeline_with_a_wrong_secret_exits_with_the_reason(cluster: Cluster) -> None:
    cluster.do("node", "stop", "pipeline-2")
    wrong = json.dumps({"spark.authenticate.secret": "wrong", "spark.driver.memory": "1g"})
    begun = time.monotonic()
    ended = cluster.run(
        "pipeline", "--name", "pipeline-2", "--config", str(cluster.config), KOPI_SPARK__CONF=wrong
    )
    why = "wrong secret, no workers, or no free cores"
    assert ended.returncode == 3
    *log, last = ended.stderr.splitlines()
    assert re.fullmatch(
        rf"kopi: spark\.master spark://127\.0\.0\.1:\d+: no executor within \d+ s: {why}", last
    )
    assert all("Spark's log is kept in" in line for line in log)
    cluster.note(f"a wrong secret is reported after {time.monotonic() - begun:.0f} s")


def test_down_leaves_no_process_port_or_temporary_file(cluster: Cluster) -> None:
    ports = cluster.ports()
    assert [port for port in ports if is_free(port)] == []
    for victim in ("pipeline-1", "gateway-1", "spark-worker-2"):
        cluster.kill(victim)  # so that it leaves temporary files behind
    stopped = cluster.down()
    assert {"spark-master", "spark-worker-1", "gateway-2", "monitor-3"} <= set(stopped)
    assert cluster.processes() == []
    assert [port for port in ports if not is_free(port)] == []
    assert list(cluster.temporary.iterdir()) == []
    for place in ("scratch/*/*", "incoming/*/*", "services/*/scratch"):
        assert not list(cluster.home.glob(place))


@only_in_full
@pytest.mark.usefixtures("rabbitmq")
@pytest.mark.parametrize(("workers", "shards"), [(1, 1), (1, 3), (2, 1)])
def test_the_number_of_workers_and_shards_changes_no_byte(
    embedded: dict[str, bytes], tiny_folder: Path, tmp_path: Path, workers: int, shards: int
) -> None:
    with up(Cluster(tmp_path, workers, shards)) as cluster:
        cluster.submit(tiny_folder, tmp_path / "answers")
        assert answers_in(tmp_path / "answers") == embedded


@only_in_full
def test_the_number_of_shards_in_one_process_changes_no_byte(
    embedded: dict[str, bytes], tiny_folder: Path, tmp_path: Path
) -> None:
    assert analyzed(tiny_folder, tmp_path / "answers", KOPI_PIPELINE__SHARDS="3") == embedded


def analyzed(data: Path, out: Path, **environment: str) -> dict[str, bytes]:
    command = [KOPI, "analyze", data, "--out", out]
    quick = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    subprocess.run(command, env={**os.environ, **quick, **environment}, check=True, capture_output=True)
    return answers_in(out)


def answers_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("results_query_*")}


def megabytes(line: str) -> str:
    match = re.search(r"([\d,]+) MB", line)
    assert match
    return match[1].replace(",", "")


def free_ports(count: int) -> int:
    """The first of `count` consecutive free ports."""
    while True:
        first = free_port()
        if all(is_free(first + index) for index in range(count)):
            return first


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False

"""Addresses of services in the settings, checks before a start, and the programs of nodes."""

import contextlib
import os
import socket
import stat
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kopitiam.contracts.config import (
    BusSection,
    MonitorSection,
    NodeSection,
    NodesSection,
    PipelineSection,
    RegistrySection,
    ServicesSection,
    Settings,
)
from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.fleet.home import FleetHome, read_record, write_record
from kopitiam.fleet.lifecycle import (
    Fleet,
    added_pipelines,
    node_program,
    open_fleet,
    require_kind,
    start_node,
    stop_node,
)
from kopitiam.fleet.preflight import check_machines, check_settings, check_shards_of_open_runs
from kopitiam.fleet.services import probes, recorded_probes, service_settings, services_of
from kopitiam.fleet.services.base import Site, read_url, without_credentials, write_url
from kopitiam.registry import open_registry
from kopitiam.runtime.home import exclusive_home

BOTH = NodesSection(services=("rabbitmq", "postgresql"))
POSTGRESQL = "postgresql://kopitiam:secret@127.0.0.1:12345/postgres"
RABBITMQ = "amqp://kopitiam:secret@127.0.0.1:12346"


def spelled(port, password):
    return f"postgresql://kopitiam:{password}@h1:{port}/postgres"


@pytest.fixture
def known(home):
    """Both services have been started once."""
    write_url(home.service("postgresql"), POSTGRESQL)
    write_url(home.service("rabbitmq"), RABBITMQ)


def test_addresses_are_filled_in_where_the_settings_keep_their_default(settings, known):
    filled = service_settings(settings.model_copy(update={"nodes": BOTH}))
    assert (filled.registry.url, filled.bus.url) == (POSTGRESQL, RABBITMQ)
    assert filled.home == settings.home


def test_an_address_in_the_settings_is_kept(settings, known):
    own = {"registry": RegistrySection(url="postgresql://db/x"), "bus": BusSection(url="amqp://mq")}
    filled = service_settings(settings.model_copy(update={"nodes": BOTH, **own}))
    assert (filled.registry.url, filled.bus.url) == ("postgresql://db/x", "amqp://mq")


def test_services_that_are_not_configured_change_no_setting(settings, known):
    assert service_settings(settings) == settings


def test_a_service_that_was_never_started_raises_a_service_error(settings):
    with pytest.raises(
        ServiceError, match=r"^postgresql: not started yet; start it with: kopi node start postg"
    ):
        service_settings(settings.model_copy(update={"nodes": BOTH}))


def test_services_are_listed_in_start_order(settings):
    with_services = settings.model_copy(update={"nodes": BOTH})
    assert [service.name for service in services_of(with_services)] == ["postgresql", "rabbitmq"]


def test_an_unknown_service_is_refused(settings):
    with_services = settings.model_copy(update={"nodes": NodesSection(services=("redis",))})
    known = "postgresql, rabbitmq, spark-master, spark-worker-1, …"
    with pytest.raises(ConfigError, match=rf"^nodes.services: redis is not one of {known}$"):
        service_settings(with_services)


def test_an_address_is_chosen_once_and_readable_by_its_owner_only(settings, home):
    site, folder = Site.of(settings, "postgresql"), home.service("postgresql")
    assert read_url(folder) is None
    chosen = site.record_url(spelled)
    assert site.record_url(spelled) == read_url(folder) == chosen
    assert [path.name for path in folder.iterdir()] == ["address.json"]
    assert stat.S_IMODE((folder / "address.json").stat().st_mode) == 0o600


def test_an_unreadable_address_file_raises_a_service_error(tmp_path):
    (tmp_path / "address.json").write_text("{")
    with pytest.raises(ServiceError, match=r"address\.json: cannot be read"):
        read_url(tmp_path)


def test_an_address_is_shown_without_its_credentials():
    assert without_credentials(POSTGRESQL) == "postgresql://127.0.0.1:12345"


def test_probes_fail_if_the_service_is_down_silent_or_another_program(settings, home, known):
    probe_of = probes(settings.model_copy(update={"nodes": BOTH}))
    assert {name: probe() for name, probe in probe_of.items()} == dict.fromkeys(probe_of, False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        write_url(home.service("postgresql"), f"postgresql://x:y@127.0.0.1:{port}/z")
        assert not probe_of["postgresql"]()  # accepts connections and sends nothing
        other_program = threading.Thread(target=lambda: listening.accept()[0].sendall(b"HTTP/1.1 400\r\n"))
        listening.accept()[0].close()
        other_program.start()
        assert not probe_of["postgresql"]()
        other_program.join()


def test_the_probe_of_a_service_stopped_on_purpose_succeeds(settings, home):
    watched = recorded_probes(settings.model_copy(update={"nodes": BOTH}))
    assert watched["rabbitmq"]()
    home.make()
    home.record("rabbitmq").write_text("{}")
    assert not watched["rabbitmq"]()


def test_probes_fail_before_the_first_start(settings):
    probe_of = probes(settings.model_copy(update={"nodes": BOTH}))
    assert {name: probe() for name, probe in probe_of.items()} == {"postgresql": False, "rabbitmq": False}


def test_a_fleet_on_the_memory_bus_is_refused(settings):
    with pytest.raises(
        ConfigError, match=r"^bus.url: a fleet needs amqp://…, or rabbitmq among nodes.services$"
    ):
        check_settings(settings)
    check_settings(settings.model_copy(update={"bus": BusSection(url="amqp://mq")}))
    check_settings(settings.model_copy(update={"nodes": NodesSection(services=("rabbitmq",))}))


@pytest.mark.parametrize(
    ("pipelines", "got"),
    [
        ({"p-1": (0,)}, "0"),
        ({"p-1": (0, 1), "p-2": (1, 2)}, "0, 1, 1, 2"),
        ({"p-1": (0, 2, 3)}, "0, 2, 3"),
    ],
)
def test_a_shard_with_no_pipeline_or_two_is_refused(settings, pipelines, got):
    nodes = NodesSection(services=("rabbitmq",), pipelines=pipelines)
    with_shards = settings.model_copy(update={"nodes": nodes, "pipeline": PipelineSection(shards=3)})
    with pytest.raises(
        ConfigError, match=rf"^nodes.pipelines: expected each of the 3 shards .* once, got {got}$"
    ):
        check_settings(with_shards)


def test_every_shard_once_no_pipelines_and_extra_shards_are_accepted(settings):
    for_earlier_runs = {"p-1": (0, 1, 2, 3)}
    for pipelines in ({"p-1": (2, 0), "p-2": (1,)}, {}, for_earlier_runs):
        nodes = NodesSection(services=("rabbitmq",), pipelines=pipelines)
        check_settings(settings.model_copy(update={"nodes": nodes, "pipeline": PipelineSection(shards=3)}))


def test_a_home_in_use_by_kopi_serve_is_refused(settings):
    on_rabbitmq = settings.model_copy(update={"nodes": NodesSection(services=("rabbitmq",))})
    with exclusive_home(settings.home), pytest.raises(ConfigError, match="a kopi serve uses this home"):
        check_settings(on_rabbitmq)
    check_settings(on_rabbitmq)


def test_the_command_of_a_node_has_the_full_path_of_the_settings_file(tmp_path, monkeypatch):
    (tmp_path / "kopitiam.toml").write_text(
        'home = "h"\n[pipeline]\nshards = 2\n[nodes]\npipelines = {p = [0, 1]}\n'
    )
    monkeypatch.chdir(tmp_path)
    fleet = open_fleet(None)
    program = node_program(fleet.settings, fleet.config, "p")
    assert program.kind == "pipeline"
    assert list(program.command()[3:]) == [
        "pipeline", "--name", "p", "--config", str(tmp_path / "kopitiam.toml"), "--shards", "0,1"
    ]  # fmt: skip


def test_added_pipelines_are_those_without_a_record_beside_running_ones(settings, home):
    nodes = NodesSection(pipelines={"p-1": (0,), "p-2": (1,)})
    fleet = Fleet(settings.model_copy(update={"nodes": nodes}))
    assert added_pipelines(fleet) == [], "all of them start together"
    write_record(home, "p-1", "pipeline", os.getpid(), ["kopi"])
    assert added_pipelines(fleet) == ["p-2"]
    write_record(home, "p-2", "pipeline", os.getpid(), ["kopi"])
    assert added_pipelines(fleet) == []


def test_an_unknown_node_is_refused_with_the_list_of_nodes(settings):
    with pytest.raises(ConfigError, match=r"^gateway-9: no such node; there are gateway-1, pipeline-1, mon"):
        require_kind(Fleet(settings), "gateway-9")


def test_shards_of_open_runs_need_a_pipeline_until_the_runs_end(tmp_path: Path) -> None:
    with contextlib.closing(open_registry("sqlite", tmp_path)) as registry:
        registry.open_run({}, "", "anna", idempotency_key=None, lease_seconds=60, shards=3)
        shrunk = Settings(
            home=tmp_path,
            pipeline=PipelineSection(shards=2),
            nodes=NodesSection(pipelines={"pipeline-1": (0, 1)}),
        )
        with pytest.raises(ConfigError, match=r"^nodes.pipelines: .* 3 shards; keep a pipeline for 2 until"):
            check_shards_of_open_runs(shrunk, registry)
        kept = shrunk.model_copy(update={"nodes": NodesSection(pipelines={"a": (0, 1), "b": (2,)})})
        check_shards_of_open_runs(kept, registry)


# -- several machines


def machines(settings, host="h2", **changes):
    """Two machines: the services, a worker and a monitor on h1, the rest on h2."""
    services = ("postgresql", "rabbitmq", "spark-master", "spark-worker-1")
    nodes = NodesSection(
        monitors=("monitor-1", "monitor-2"),
        services=services,
        hosts=dict.fromkeys(("monitor-1", *services), "h1")
        | dict.fromkeys(("gateway-1", "pipeline-1", "monitor-2"), "h2"),
    )
    sections = {
        "nodes": nodes,
        "node": NodeSection(host=host),
        "services": ServicesSection(listen="0.0.0.0", secret="sixteen letters!"),
        "monitor": MonitorSection(revive="ssh {host} kopi node start {node}"),
    }
    return settings.model_copy(update=sections | changes)


def test_machines_that_know_the_secret_find_the_services_without_any_file(settings, home):
    here, there = machines(settings, "h1"), machines(settings.model_copy(update={"home": Path("/other")}))
    filled = service_settings(there)
    password = urlsplit(filled.registry.url).password
    assert filled.registry.url == f"postgresql://kopitiam:{password}@h1:8450/postgres"
    assert filled.bus.url == f"amqp://kopitiam:{urlsplit(filled.bus.url).password}@h1:8451"
    assert (filled.spark.master, len(password)) == ("spark://h1:8452", 64)
    conf = filled.spark.conf
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == ("h2", "0.0.0.0")
    passwords = {password, urlsplit(filled.bus.url).password, conf["spark.authenticate.secret"]}
    assert len(passwords) == 3, "each service has its own"
    assert "sixteen letters!" not in str(filled.model_dump(mode="json")) + str(passwords)
    assert service_settings(here).registry.url == filled.registry.url
    other = ServicesSection(listen="0.0.0.0", secret="another sixteen!")
    assert service_settings(machines(settings, services=other)).registry.url != filled.registry.url
    assert not home.path.exists()


def test_without_a_secret_a_service_of_another_machine_cannot_be_found(settings):
    with pytest.raises(
        ConfigError, match=r"^postgresql runs on h1: set services\.secret, by which it is found$"
    ):
        service_settings(machines(settings, services=ServicesSection()))


def test_a_new_secret_changes_the_password_of_the_data_before_it_is_recorded(settings, home):
    chosen = Site.of(settings, "postgresql").record_url(spelled)
    site, changes = Site.of(machines(settings, "h1"), "postgresql"), []

    def fail(password):
        raise ServiceError(f"not changed to {password}")

    with pytest.raises(ServiceError):
        site.record_url(spelled, fail)
    assert read_url(home.service("postgresql")) == chosen
    url = site.record_url(spelled, changes.append)
    assert site.record_url(spelled, changes.append) == url == read_url(home.service("postgresql"))
    assert changes == [urlsplit(url).password]


@pytest.mark.parametrize(
    ("changes", "flaw"),
    [
        (
            {"node": NodeSection(host="h9")},
            r"nodes\.hosts: no node runs on h9, which is the name of this",
        ),
        (
            {"services": ServicesSection()},
            r"services\.listen: postgresql on h1 must be reached from other",
        ),
        (
            {"monitor": MonitorSection()},
            r"monitor\.revive: 'kopi node start .*' runs on the leader's mach",
        ),
        ({"node": NodeSection(host="h2")}, r"node\.host h2: cannot be resolved: Name or service not known"),
    ],
)
def test_machines_that_could_not_work_together_are_refused(settings, changes, flaw, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConfigError, match=f"^{flaw}"):
        check_machines(machines(settings, **changes))


@pytest.mark.parametrize(
    ("address", "flaw"),
    [
        ("127.0.1.1", "is 127.0.1.1 here, where other machines cannot reach it; correct /etc/hosts"),
        ("192.0.2.1", "192.0.2.1 is no address of this machine"),
    ],
)
def test_a_machine_whose_name_is_not_its_address_is_refused(settings, address, flaw, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 0))])
    with pytest.raises(ConfigError, match=rf"^node\.host h2: {flaw}"):
        check_machines(machines(settings))


def test_every_node_needs_a_machine_if_any_has_one(settings):
    nodes = NodesSection(hosts={"gateway-1": "h1", "pipeline-1": "h2"})
    with pytest.raises(ConfigError, match=r"^nodes\.hosts: which machine runs monitor-1, monitor-2, mon"):
        check_machines(machines(settings, nodes=nodes))


def test_a_node_is_started_and_stopped_on_its_own_machine_only(settings):
    fleet = Fleet(machines(settings))
    assert list(fleet.kinds_here) == ["gateway-1", "pipeline-1", "monitor-2"]
    for command in (start_node, stop_node):
        with pytest.raises(ConfigError, match=r"^monitor-1 runs on h1, and this machine is h2$"):
            command(fleet, "monitor-1")


def test_errors_name_the_machine_if_there_are_several(settings):
    for fleet, prefix in ((Fleet(settings), ""), (Fleet(machines(settings)), "h2: ")):
        with pytest.raises(ServiceError) as raised, fleet.naming_machine():
            raise ServiceError("no answer")
        assert str(raised.value) == f"{prefix}no answer"


def test_processes_of_another_machine_are_not_taken_for_those_of_this_one(home):
    here, there = FleetHome(home.path, "h1"), FleetHome(home.path, "h2")
    here.make()
    write_record(there, "gateway-1", "gateway", os.getpid(), ["kopi"])
    assert read_record(there, "gateway-1").process() is not None
    assert read_record(here, "gateway-1") is None
    folders = [here.process_scratch("p", 7), there.process_scratch("p", 8), home.scratch("p") / "9"]
    assert [here.pid_of_scratch(folder) for folder in folders] == [7, None, 9]

"""deploy/compose.yaml is valid by the Compose specification and has the nodes of its configuration."""

import json
from importlib.resources import files

import jsonschema
import pytest
from deployments import DEPLOY, NODES, documents, dotenv, interpolated, parse_kopi, revival, settings_of

CONFIG = DEPLOY / "compose" / "kopitiam.toml"
SCHEMA = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
SERVICES = {"postgresql", "rabbitmq", "spark-master", "spark-worker-1", "spark-worker-2"}


@pytest.fixture(scope="module")
def compose():
    return documents(DEPLOY / "compose.yaml")[0]


@pytest.fixture(scope="module")
def services(compose):
    return compose["services"]


def environment(service):
    variables = dotenv(DEPLOY / ".env.example")
    return {name: interpolated(value, variables) for name, value in service["environment"].items()}


def test_the_file_is_valid_by_the_compose_specification(compose):
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(compose)


def test_the_specification_would_refuse_a_misspelled_key(compose):
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    misspelled = compose | {"services": {"gateway-1": {"image": "kopitiam:latest", "helthcheck": {}}}}
    with pytest.raises(jsonschema.ValidationError, match="helthcheck"):
        jsonschema.Draft202012Validator(schema).validate(misspelled)


def test_every_node_of_the_configuration_has_a_container_of_its_name(services, monkeypatch):
    settings = settings_of(CONFIG, environment(services["gateway-1"]), monkeypatch)
    assert settings.nodes.kinds == NODES
    assert services.keys() == NODES.keys() | SERVICES
    assert all(services[name]["container_name"] == name for name in services)


@pytest.mark.parametrize("name", NODES)
def test_every_node_runs_its_command_under_settings_that_are_accepted(services, name, monkeypatch):
    command, arguments = parse_kopi(services[name]["command"])
    assert (command, arguments["name"]) == (NODES[name], name)
    mounted = [volume for volume in services[name]["volumes"] if volume.startswith("./")]
    source, target, _ = mounted[0].split(":")
    assert (DEPLOY / source).samefile(CONFIG)
    assert str(arguments["config"]) == target

    settings = settings_of(CONFIG, environment(services[name]), monkeypatch)

    assert settings.registry.url == "postgresql://kopitiam:change-me@postgresql:5432/kopitiam"
    assert settings.bus.url == "amqp://kopitiam:change-me@rabbitmq:5672/"
    mounts = {volume.split(":")[1] for volume in services[name]["volumes"]}
    assert str(settings.home) not in mounts, "a home is that of one container"
    assert ("/mnt/kopitiam" in mounts) == (NODES[name] != "monitor")
    assert settings.storage.url == "file:///mnt/kopitiam"
    assert services[name]["hostname"] == settings.nodes.hosts[name] == name
    if NODES[name] == "gateway":
        assert settings.gateway.admin_token.get_secret_value() == "change-me"
        settings.gateway.require_guarded()
        assert list(settings.gateway.tokens) == ["kuala-lumpur"]
    if NODES[name] == "pipeline":
        assert settings.spark.conf["spark.authenticate.secret"] == "change-me"
        assert settings.spark.conf["spark.authenticate"] == "true", "the file's own settings are kept"
        assert settings.spark_conf["spark.driver.host"] == name


def test_gateways_are_published_on_loopback_where_they_advertise_themselves(services, monkeypatch):
    for number, name in enumerate(("gateway-1", "gateway-2")):
        settings = settings_of(CONFIG, environment(services[name]), monkeypatch)
        listened, published = settings.gateway_port(name), 8440 + number
        assert services[name]["ports"] == [f"127.0.0.1:{published}:{listened}"]
        assert settings.advertised_url(listened) == f"http://127.0.0.1:{published}"
        assert f":{listened}/healthz" in services[name]["healthcheck"]["test"][-1]
    assert not any("ports" in service for name, service in services.items() if "gateway" not in name)


def test_only_monitors_restart_nodes_and_only_they_have_the_socket(services, monkeypatch):
    settings = settings_of(CONFIG, environment(services["monitor-1"]), monkeypatch)
    assert revival(settings, "pipeline-2") == "docker restart pipeline-2"
    for name, service in services.items():
        is_monitor = NODES.get(name) == "monitor"
        assert ("/var/run/docker.sock:/var/run/docker.sock" in service["volumes"]) == is_monitor
        assert service["restart"] == ("no" if name in NODES else "unless-stopped")
        assert ("group_add" in service) == is_monitor
        assert (service["image"] == "kopitiam-monitor:latest") == is_monitor


def test_each_own_image_is_built_by_one_service_and_never_pulled(services):
    ours = {name: service for name, service in services.items() if service["image"].startswith("kopitiam")}
    built = {service["image"]: service["build"]["target"] for service in ours.values() if "build" in service}
    assert built == {"kopitiam:latest": "node", "kopitiam-monitor:latest": "monitor"}
    assert sum("build" in service for service in ours.values()) == len(built)
    assert all("build" in service or service["pull_policy"] == "never" for service in ours.values())


def test_every_service_has_a_health_check_and_waits_for_its_dependencies(services):
    for name, service in services.items():
        assert service["healthcheck"]["test"][0] == "CMD", name
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services
            assert how == {"condition": "service_healthy"}
    spark = {"spark-worker-1", "spark-worker-2"}
    assert services["pipeline-1"]["depends_on"].keys() == {"postgresql", "rabbitmq"} | spark
    assert all(services[worker]["depends_on"].keys() == {"spark-master"} for worker in spark)
    for name in set(NODES) - {"gateway-1", "gateway-2"}:
        assert services[name]["healthcheck"]["test"] == ["CMD", "entrypoint", "alive", name]


def test_spark_shares_the_storage_and_the_secret_with_the_pipelines(services, monkeypatch):
    settings = settings_of(CONFIG, environment(services["pipeline-1"]), monkeypatch)
    master = services["spark-master"]
    words = master["command"]
    host, port = (words[words.index(flag) + 1] for flag in ("--host", "--port"))
    assert settings.spark.master == f"spark://{host}:{port}" == services["spark-worker-1"]["command"][-1]
    for name in SERVICES - {"postgresql", "rabbitmq"}:
        assert environment(services[name])["_SPARK_AUTH_SECRET"] == "change-me"
        assert ("storage:/mnt/kopitiam" in services[name]["volumes"]) == name.startswith("spark-worker-")
    lines = (DEPLOY / "compose" / "spark.properties").read_text(encoding="utf-8").splitlines()
    properties = dict(line.split() for line in lines if line and not line.startswith("#"))
    assert properties["spark.authenticate"] == settings.spark.conf["spark.authenticate"] == "true"
    assert not any("secret" in name for name in properties)


def test_cores_are_enough_for_all_pipelines_at_once(services, monkeypatch):
    settings = settings_of(CONFIG, environment(services["pipeline-1"]), monkeypatch)
    workers = [services[name]["command"] for name in ("spark-worker-1", "spark-worker-2")]
    cores = sum(int(words[words.index("--cores") + 1]) for words in workers)
    assert int(settings.spark.conf["spark.cores.max"]) * len(settings.nodes.pipelines) <= cores


def test_no_secret_is_committed_and_no_registry_is_named(services):
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert "change-me" not in text
    assert all("/" not in service["image"] for service in services.values())
    ignored = (DEPLOY.parent / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "/deploy/.env" in ignored

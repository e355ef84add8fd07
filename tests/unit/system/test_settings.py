"""Settings from the file and the environment, and the errors for wrong ones."""

import socket
import tomllib
from pathlib import Path

import pytest

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.parameters import Parameters
from kopitiam.system.settings import load_settings


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path):
    def write(content, name="settings.toml"):
        tmp_path.joinpath(name).write_text(content, encoding="utf-8")
        return tmp_path / name

    return write


def refusal(file=None):
    with pytest.raises(ConfigError) as refused:
        load_settings(file)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_without_file_and_environment_the_defaults_hold():
    assert load_settings().questions.parameters() == Parameters()
    assert load_settings().spark.master == "local[*]"


def test_the_example_lists_every_key_with_its_default():
    text = (Path(__file__).parents[3] / "kopitiam.example.toml").read_text(encoding="utf-8")
    example = tomllib.loads(text)
    keys = {name: set(section) if isinstance(section, dict) else None for name, section in example.items()}
    defaults = load_settings().model_dump()
    for name, value in defaults.items():
        assert name in keys
        if isinstance(value, dict):
            assert set(value) - keys[name] <= {"patience_seconds"}, name
    settings = load_settings(Path(__file__).parents[3] / "kopitiam.example.toml")
    assert settings.model_dump() == defaults


def test_the_file_is_read(write):
    file = write("""
        [questions]
        years = [2020, 2021]
        hours = ["05:00:00", "22:00:00"]
        min_amount = "10.5"
        top = 5
        [spark]
        master = "local[2]"
        conf = { "spark.sql.shuffle.partitions" = "3" }
    """)
    settings = load_settings(file)
    assert settings.questions.parameters() == Parameters(2020, 2021, "05:00:00", "22:00:00", "10.5", 5)
    assert settings.spark.master == "local[2]"
    assert settings.spark.conf == {"spark.sql.shuffle.partitions": "3"}


def test_kopitiam_toml_in_the_working_folder_counts_unless_another_file_is_named(write):
    write("[questions]\ntop = 5\n", "kopitiam.toml")
    other = write("[questions]\nmin_amount = '1'\n")
    assert load_settings().questions.top == 5
    assert load_settings(other).questions.top == 3


def test_the_environment_overrides_the_file_key_by_key(write, monkeypatch):
    file = write("[questions]\ntop = 5\nmin_amount = '10'\n")
    monkeypatch.setenv("KOPI_QUESTIONS__TOP", "7")
    monkeypatch.setenv("KOPI_QUESTIONS__YEARS", "[2023, 2024]")
    monkeypatch.setenv("KOPI_SPARK__MASTER", "local[1]")
    settings = load_settings(file)
    assert settings.questions.parameters() == Parameters(2023, 2024, min_amount="10", top=7)
    assert settings.spark.master == "local[1]"


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ("[questions]\ntops = 5\n", "questions.tops"),
        ("[question]\ntop = 5\n", "question"),
        ("top = 5\n", "top"),
        ("[questions]\ntop = 'five'\n", "questions.top"),
        ("[questions]\nyears = [2024]\n", "questions.years"),
        ("[spark]\nmaster = 3\n", "spark.master"),
    ],
)
def test_an_unknown_key_or_wrong_value_is_refused_with_file_and_key(write, content, key):
    file = write(content)
    assert refusal(file).startswith(f"{file}: {key}")


def test_an_unknown_or_wrong_variable_is_blamed_on_the_environment(write, monkeypatch):
    file = write("[questions]\nmin_amount = '1'\n")
    monkeypatch.setenv("KOPI_QUESTIONS__TOPS", "5")
    assert refusal(file).startswith("environment: questions.tops: ")
    monkeypatch.delenv("KOPI_QUESTIONS__TOPS")
    monkeypatch.setenv("KOPI_QUESTIONS__TOP", "five")
    assert refusal(file).startswith("environment: questions.top: ")
    assert refusal().startswith("environment: questions.top: ")


@pytest.mark.parametrize("variable", ["KOPI_QUESTIONS", "KOPI_SPARK__CONF"])
def test_a_variable_that_should_be_json_and_is_not_is_refused(monkeypatch, variable):
    monkeypatch.setenv(variable, "what?")
    assert refusal().startswith("environment: ")


def test_a_file_that_is_not_toml_is_refused(write, tmp_path):
    file = write("[questions\n")
    assert refusal(file).startswith(f"{file}: not TOML: ")
    file.write_bytes(b"top = '\xff'\n")
    assert refusal(file).startswith(f"{file}: not TOML: ")


def test_a_missing_file_is_refused(tmp_path):
    assert (
        refusal(tmp_path / "none.toml")
        == f"{tmp_path / 'none.toml'}: cannot be read: No such file or directory"
    )
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


def test_the_lease_of_a_private_service_outlasts_a_suspended_laptop(write, tmp_path):
    settings = load_settings(write("[gateway]\nlease_seconds = 5\n"))
    assert settings.privately(tmp_path).gateway.lease_seconds > 30 * 86400


@pytest.mark.parametrize(
    ("content", "url"),
    [
        ("", "http://127.0.0.1:8440"),
        ("listen = 'gateway.example:80'", "http://gateway.example:80"),
        ("listen = '0.0.0.0:8441'", "http://127.0.0.1:8441"),
        ("listen = '[::]:8441'", "http://[::1]:8441"),
        ("listen = '10.0.0.5:443'\ntls_cert = 'cert.pem'\ntls_key = 'key.pem'", "https://10.0.0.5:443"),
    ],
)
def test_the_url_of_a_gateway_follows_from_its_listen_address(write, content, url):
    assert load_settings(write(f"[gateway]\n{content}\n")).gateway.url == url


def test_every_pipeline_has_all_shards_unless_they_are_assigned(write, monkeypatch):
    assert load_settings().nodes.pipelines == {"pipeline-1": (0,)}
    shards = "[pipeline]\nshards = 3\n"
    assert load_settings(write(f"{shards}[nodes]\ngateways = ['g']\n")).nodes.pipelines == {
        "pipeline-1": (0, 1, 2)
    }
    assert load_settings(write(f"{shards}[nodes]\npipelines = {{ p = [1] }}\n")).nodes.pipelines == {
        "p": (1,)
    }
    assert load_settings(write(f"{shards}[nodes]\npipelines = {{}}\n")).nodes.pipelines == {}
    monkeypatch.setenv("KOPI_PIPELINE__SHARDS", "2")
    assert load_settings().nodes.pipelines == {"pipeline-1": (0, 1)}
    monkeypatch.setenv("KOPI_NODES__PIPELINES", '{"p": [0]}')
    assert load_settings().nodes.pipelines == {"p": (0,)}


# -- machines

FLEET = """
[node]
host = "H2"
[gateway]
listen = "0.0.0.0:8440"
[services]
listen = "0.0.0.0"
secret = "sixteen letters!"
ports = { rabbitmq = 9000 }
[nodes]
gateways = ["gateway-1", "gateway-2", "gateway-3"]
services = ["postgresql", "rabbitmq", "spark-master", "spark-worker-3"]
hosts = { "gateway-1" = "h1", "gateway-2" = "h2", "gateway-3" = "h2", "pipeline-1" = "h2" }
"""


def test_the_name_of_this_machine_is_its_host_name_unless_the_settings_name_it(write, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "Branch-7")
    assert load_settings().host == "branch-7"
    assert load_settings(write(FLEET)).host == "h2"
    monkeypatch.setenv("KOPI_NODE__HOST", "10.0.0.7")
    assert load_settings(write(FLEET)).host == "10.0.0.7"


def test_gateways_share_a_port_unless_they_share_a_machine(write):
    settings = load_settings(write(FLEET))
    ports = {name: settings.gateway_port(name) for name in settings.nodes.gateways}
    assert ports == {"gateway-1": 8440, "gateway-2": 8440, "gateway-3": 8441}
    assert settings.gateway_urls == ("http://h1:8440", "http://h2:8440", "http://h2:8441")
    assert load_settings(write("[nodes]\ngateways = ['a', 'b']\n")).gateway_port("b") == 8441


@pytest.mark.parametrize(
    ("content", "url"),
    [
        ("", "http://127.0.0.1:8440"),
        ("[node]\nhost = 'h1'\n", "http://127.0.0.1:8440"),
        ("[node]\nhost = 'h1'\n[gateway]\nlisten = '0.0.0.0:8440'\n", "http://h1:8440"),
        ("[node]\nhost = '2001:db8::1'\n[gateway]\nlisten = '[::]:8440'\n", "http://[2001:db8::1]:8440"),
        ("[node]\nhost = 'h1'\n[gateway]\nlisten = '10.0.0.5:8440'\n", "http://h1:8440"),
        ("[gateway]\nlisten = '10.0.0.5:8440'\n", "http://10.0.0.5:8440"),
        ("[gateway]\nlisten = '0.0.0.0:8440'\nadvertise = 'https://kopi.example/'\n", "https://kopi.example"),
    ],
)
def test_a_gateway_advertises_the_name_of_its_machine_unless_told_otherwise(write, content, url):
    assert load_settings(write(content)).advertised_url(8440) == url


def test_a_gateway_answers_to_the_name_of_its_machine_if_others_can_reach_it(write, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "branch-7")
    assert "branch-7" not in load_settings().host_names
    assert "branch-7" in load_settings(write("[gateway]\nlisten = '0.0.0.0:8440'\n")).host_names
    assert "h2" in load_settings(write(FLEET)).host_names


def test_ports_of_services_are_known_to_all_machines(write):
    services = load_settings(write(FLEET)).services
    names = ("postgresql", "rabbitmq", "spark-master", "spark-worker-1", "spark-worker-3")
    assert [services.port(name) for name in names] == [8450, 9000, 8452, 8462, 8466]
    with pytest.raises(ConfigError, match=r"^services\.ports: spark-worker-99999 has no port; set one$"):
        services.port("spark-worker-99999")


def test_executors_of_a_cluster_reach_the_driver_by_the_name_of_its_machine(write):
    cluster = "[spark]\nmaster = 'spark://m:7077'\n"
    everywhere = {"spark.driver.bindAddress": "0.0.0.0"}
    assert load_settings(write(cluster)).spark_conf == {}
    assert load_settings(write("[node]\nhost = 'h1'\n")).spark_conf == {}, "it has no executors elsewhere"
    named = load_settings(write(f"[node]\nhost = 'h1'\n{cluster}"))
    assert named.spark_conf == {"spark.driver.host": "h1", **everywhere}
    own = load_settings(write(f"[node]\nhost = 'h1'\n{cluster}driver_host = 'nat.example'\n"))
    assert own.spark_conf == {"spark.driver.host": "nat.example", **everywhere}


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        (
            "[node]\nhost = 'a b'\n",
            "node.host: Value error, 'a b': expected the name or address of a",
        ),
        ("[services]\nlisten = 'h1'\n", "services.listen: Value error, expected an address of this machine"),
        (
            "[services]\nlisten = '0.0.0.0'\n",
            "services: Value error, listen 0.0.0.0: other machines need services",
        ),
        ("[services]\nsecret = 'short'\n", "services.secret: Value error, expected at least 16 characters"),
        ("[services]\nports = { rabbitmq = 0 }\n", "services.ports.rabbitmq: Input should be greater than"),
        (
            "[nodes]\nhosts = { x = 'h1' }\n",
            "nodes: Value error, hosts: x: no such node; there are gateway-1",
        ),
        (
            "[nodes]\nhosts = { gateway-1 = '' }\n",
            "nodes.hosts.gateway-1: Value error, '': expected the",
        ),
        ("[spark]\ndriver_host = 'a/b'\n", "spark.driver_host: Value error, 'a/b': expected the name"),
    ],
)
def test_flaws_in_the_settings_of_machines_are_named(write, content, flaw):
    file = write(content)
    assert refusal(file).startswith(f"{file}: {flaw}")

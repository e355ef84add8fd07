"""Settings from the file and the environment, and the errors for wrong ones."""

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
    assert settings.privately(tmp_path, "token").gateway.lease_seconds > 30 * 86400


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

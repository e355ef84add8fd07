"""Which storage the settings mean, which options Spark gets, and the errors of unusable settings."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from kopitiam.contracts.config import Settings, SparkSection, StorageSection
from kopitiam.contracts.errors import ConfigError, Unavailable
from kopitiam.storage.local import LocalStorage
from kopitiam.storage.open import hadoop_conf, open_storage, temporary_storage
from kopitiam.storage.port import Key
from kopitiam.storage.probe import checked
from kopitiam.system.settings import load_settings

KEYS = {"access_key": SecretStr("the-key"), "secret_key": SecretStr("the-secret")}
BUFFERS = "${java.io.tmpdir}/s3a"  # Hadoop fills it in


def settings(
    home: Path = Path("/nowhere"), conf: dict[str, str] | None = None, **storage: object
) -> Settings:
    return Settings(home=home, storage=StorageSection(**storage), spark=SparkSection(conf=conf or {}))


@pytest.mark.parametrize(
    ("storage", "flaw"),
    [
        ({"url": "somewhere"}, "expected file, or an address"),
        ({"url": "s3:bucket"}, "expected file, or an address"),
        ({"url": "s3:///prefix"}, "expected s3://bucket/prefix"),
        ({"url": "s3://key:secret@bucket/prefix"}, "keys go to access_key"),
        ({"url": "s3://bucket?region=x"}, "without"),
        ({"url": "file://host/folder"}, "three slashes"),
        ({"url": "file:///"}, "three slashes"),
        ({"url": "s3://b", "endpoint": "localhost:9000"}, "expected http://host:port"),
        ({"url": "s3://b", "endpoint": "http://localhost:9000/bucket"}, "expected http://host:port"),
        ({"url": "s3://b", "access_key": SecretStr("k")}, "set both or neither"),
        ({"url": "hdfs://h:9000/x", **KEYS}, "only s3://"),
    ],
)
def test_a_malformed_address_is_refused(storage: dict[str, object], flaw: str) -> None:
    with pytest.raises(ValidationError, match=flaw):
        StorageSection(**storage)


def test_a_refused_address_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "kopitiam.toml").write_text('[storage]\nurl = "somewhere"\n')
    with pytest.raises(ConfigError, match=r"storage\.url: .*expected file, or an address"):
        load_settings(tmp_path / "kopitiam.toml")


def test_keys_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPI_STORAGE__URL", "s3://bucket/prefix/")
    monkeypatch.setenv("KOPI_STORAGE__ACCESS_KEY", "the-key")
    monkeypatch.setenv("KOPI_STORAGE__SECRET_KEY", "the-secret")
    read = load_settings()
    assert read.storage.url == "s3://bucket/prefix"
    assert read.storage.secret_key.get_secret_value() == "the-secret"
    assert "the-key" not in repr(read)
    assert "the-secret" not in repr(read)


def test_spark_gets_the_same_s3_settings_as_pyarrow() -> None:
    conf = hadoop_conf(settings(url="s3://b/p", endpoint="http://store:9000", region="eu-1", **KEYS))
    assert conf == {
        "fs.s3a.access.key": "the-key",
        "fs.s3a.secret.key": "the-secret",
        "fs.s3a.endpoint": "http://store:9000",
        "fs.s3a.endpoint.region": "eu-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.buffer.dir": BUFFERS,
        "fs.s3a.connection.ssl.enabled": "false",
    }
    assert hadoop_conf(settings(url="s3://b/p", region="eu-1")) == {
        "fs.s3a.endpoint.region": "eu-1",
        "fs.s3a.buffer.dir": BUFFERS,
    }


def test_settings_in_spark_conf_stay() -> None:
    said = {"spark.hadoop.fs.s3a.endpoint.region": "eu-2"}
    assert hadoop_conf(settings(conf=said, url="s3://b/p", region="eu-1")) == {"fs.s3a.buffer.dir": BUFFERS}


@pytest.mark.parametrize("url", ["file", "file:///mounted", "hdfs://namenode:8020/kopitiam"])
def test_other_storage_needs_no_hadoop_settings(url: str) -> None:
    assert hadoop_conf(settings(url=url)) == {}


def test_a_private_service_keeps_apart_from_others_in_the_same_place() -> None:
    private = settings(url="s3://b/p", **KEYS).privately(Path("/tmp/kopitiam-x1"))
    assert private.storage.url == "s3://b/p/private-kopitiam-x1"
    assert private.storage.secret_key.get_secret_value() == "the-secret"
    assert settings().privately(Path("/tmp/kopitiam-x1")).storage.url == "file"


def test_the_files_of_a_private_service_are_removed_with_it(tmp_path: Path) -> None:
    private = settings(tmp_path, url=f"file://{tmp_path}/mounted/private-x")
    with temporary_storage(private) as storage:
        storage.replace(Key("results/run=r1/x"), b"answer")
        assert (tmp_path / "mounted" / "private-x" / "results" / "run=r1" / "x").exists()
    assert list((tmp_path / "mounted").iterdir()) == []


def test_a_home_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    told = rf"^storage\.url file \({tmp_path}/home\): cannot be written: File exists$"
    with pytest.raises(Unavailable, match=told):
        open_storage(settings(tmp_path / "home"))


def test_a_mounted_folder_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mounted").write_text("in the way")
    url = f"file://{tmp_path}/mounted/kopitiam"
    with pytest.raises(Unavailable, match=rf"^storage\.url {url}: cannot be written: File exists$"):
        open_storage(settings(tmp_path, url=url))


def test_an_unknown_scheme_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^storage\.url gopher://host/x: "):
        open_storage(settings(tmp_path, url="gopher://host/x"))


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Taken, so that nobody else takes it, but nobody listens."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_an_unreachable_store_is_reported_in_time(tmp_path: Path, closed_port: int) -> None:
    begun = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"^storage\.url s3://bucket/x: cannot be reached: NETWORK_CONNECTION"
    ):
        open_storage(
            settings(tmp_path, url="s3://bucket/x", endpoint=f"http://127.0.0.1:{closed_port}", **KEYS)
        )
    assert time.monotonic() - begun < 10


def test_a_store_that_never_answers_times_out(tmp_path: Path) -> None:
    class Silent(LocalStorage):
        def check(self) -> None:
            time.sleep(5)

    with pytest.raises(
        Unavailable, match=r"^storage\.url s3://b: cannot be reached: no answer within 0\.1 s$"
    ):
        checked(lambda: Silent(tmp_path), "s3://b", seconds=0.1)


def test_a_store_that_returns_other_bytes_is_unavailable(tmp_path: Path) -> None:
    class Forgetful(LocalStorage):
        def replace(self, key: Key, data: bytes) -> None:
            super().replace(key, data[:-1])

    with pytest.raises(Unavailable, match=r"cannot be read: the bytes read differ from those written"):
        checked(lambda: Forgetful(tmp_path), "s3://b")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_deletes_nothing_is_unavailable(tmp_path: Path) -> None:
    class Clinging(LocalStorage):
        def remove(self, key: Key) -> None:
            pass

    with pytest.raises(Unavailable, match=r"cannot be deleted: it still exists"):
        checked(lambda: Clinging(tmp_path), "s3://b")

"""Jars for S3: fetched once, compared with their digests, and given to sessions whose storage is on S3."""

import hashlib
from pathlib import Path

import pytest

from kopitiam.contracts.config import Settings, SparkSection, StorageSection
from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.spark import s3a
from kopitiam.spark.installation import pyspark_package
from kopitiam.spark.jars import Jar, fetch_jars, read_lock

LOCK = Path(s3a.__file__).with_name("s3a.lock").read_text(encoding="utf-8")
CONTENT = b"a jar"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
IVY_SETTINGS = """<ivysettings><settings defaultResolver="here"/><resolvers>
<ibiblio name="here" m2compatible="true" root="file://{root}/"/></resolvers></ivysettings>"""
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>
<artifactId>tool</artifactId><version>1.0</version></project>"""


def settings(url: str = "s3://bucket/x", **conf: str) -> Settings:
    return Settings(storage=StorageSection(url=url), spark=SparkSection(conf=conf))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KOPI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "cache"


def test_the_list_has_hadoop_aws_of_the_version_of_sparks_hadoop_and_nothing_that_spark_has() -> None:
    jars = read_lock(LOCK)
    assert [jar.version for jar in jars if jar.artifact == "hadoop-aws"] == [s3a.hadoop_version()]
    of_spark = {path.name.rpartition("-")[0] for path in (pyspark_package() / "jars").glob("*.jar")}
    assert of_spark & {jar.artifact for jar in jars} == set()


def test_a_session_on_s3_gets_the_fetched_jars(cache: Path) -> None:
    s3a.s3a_folder().mkdir(parents=True)
    for name in ("b.jar", "a.jar"):
        (s3a.s3a_folder() / name).touch()
    folder = cache / f"s3a-{s3a.hadoop_version()}"
    assert s3a.spark_conf(settings()) == {"spark.jars": f"{folder}/a.jar,{folder}/b.jar"}


@pytest.mark.parametrize("url", ["file", "file:///mnt/x", "hdfs://name:8020/x"])
def test_other_storage_needs_no_jars(url: str) -> None:
    assert s3a.spark_conf(settings(url)) == {}


def test_missing_jars_are_named_in_one_line() -> None:
    line = r"storage\.url s3://bucket/x: Spark needs hadoop-aws [\d.]+: fetch it once with .*\.spark\.s3a"
    with pytest.raises(ConfigError, match=line) as refused:
        s3a.spark_conf(settings())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"])
def test_jars_of_the_settings_are_left_alone(name: str) -> None:
    assert s3a.spark_conf(settings(**{name: "mine"})) == {name: "mine"}


def test_a_spark_that_has_hadoop_aws_needs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "spark" / "jars" / "hadoop-aws-3.5.0.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert s3a.spark_conf(settings()) == {}


@pytest.mark.parametrize("line", ["org.example:tool:1.0", "org.example:tool:1.0 sha256:12", "tool sha256:"])
def test_a_malformed_line_of_a_list_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="expected group:artifact:version sha256:digest"):
        read_lock(f"# a comment\n{line}\n")


@pytest.fixture
def ivy_settings(tmp_path: Path) -> Path:
    """Settings of Ivy with a repository in a folder, which has a tool with a classifier."""
    folder = tmp_path / "repository" / "org" / "example" / "tool" / "1.0"
    folder.mkdir(parents=True)
    (folder / "tool-1.0.pom").write_text(POM)
    (folder / "tool-1.0-all.jar").write_bytes(CONTENT)
    file = tmp_path / "ivysettings.xml"
    file.write_text(IVY_SETTINGS.format(root=tmp_path / "repository"))
    return file


@pytest.mark.slow
def test_jars_are_fetched_whole_and_checked_or_not_at_all(ivy_settings: Path, tmp_path: Path) -> None:
    target = tmp_path / "jars"
    [jar] = read_lock(f"org.example:tool:1.0:all sha256:{DIGEST}")
    wrong = jar._replace(digest="0" * 64)
    with pytest.raises(ServiceError, match=f"^tool-1.0-all.jar: has SHA-256 {DIGEST}, expected 000"):
        fetch_jars([wrong], target, ivy_settings)
    missing = Jar("org.example", "other", "2.0", "", DIGEST)
    with pytest.raises(
        ServiceError, match=r"^jars: cannot be fetched from Maven Central: org\.example#other"
    ):
        fetch_jars([jar, missing], target, ivy_settings)
    assert not target.exists()

    fetch_jars([jar], target, ivy_settings)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {"tool-1.0-all.jar": CONTENT}
    fetch_jars([missing], target, ivy_settings)  # it is there already: nothing is fetched
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ivysettings.xml", "jars", "repository"]

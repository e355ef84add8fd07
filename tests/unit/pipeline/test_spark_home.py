"""The Spark home that starts sooner: all of pyspark's but what every start would pay for."""

from pathlib import Path

import pyspark
import pytest

from kopitiam.spark.installation import make_spark_home, spark_home

PACKAGE = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KOPI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "cache"


def test_before_it_is_made_there_is_none() -> None:
    assert spark_home() is None


def test_it_has_every_jar_but_mllib_and_no_zipped_sources() -> None:
    make_spark_home()
    home = spark_home()
    assert home is not None
    left_out = {jar.name for jar in (PACKAGE / "jars").iterdir()} - {
        jar.name for jar in (home / "jars").iterdir()
    }
    assert len(left_out) == 1
    assert left_out.pop().startswith("spark-mllib_")
    assert all(jar.exists() for jar in (home / "jars").iterdir())
    assert (home / "bin" / "spark-submit").samefile(PACKAGE / "bin" / "spark-submit")
    assert not (home / "python").exists()


def test_it_may_be_made_again_and_leaves_nothing_beside_it(cache: Path) -> None:
    make_spark_home()
    make_spark_home()
    assert list(cache.iterdir()) == [spark_home()]


def test_a_home_that_the_environment_names_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    make_spark_home()
    monkeypatch.setenv("SPARK_HOME", str(PACKAGE))
    assert spark_home() is None

"""Settings and options in deploy/ exist in the installed version of Spark."""

import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from deployments import DEPLOY, documents

PARTS = ("k8s", "internal/config", "SecurityManager", "deploy/master", "deploy/worker", "deploy/Utils")
COMPOSED = {  # Spark puts these together from parts
    "spark.kubernetes.authenticate.executor.serviceAccountName": (
        "spark.kubernetes.authenticate.executor",
        "serviceAccountName",
    ),
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.storage.options.claimName": (
        "spark.kubernetes.executor.volumes.",
        "persistentVolumeClaim",
        "options.claimName",
    ),
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.storage.mount.path": (
        "spark.kubernetes.executor.volumes.",
        "persistentVolumeClaim",
        "mount.path",
    ),
}


@pytest.fixture(scope="module")
def spelled():
    """Bytes of the Spark classes that define its settings."""
    package = find_spec("pyspark")
    jars = Path(package.origin).parent / "jars"
    archives = [*jars.glob("spark-core_*.jar"), *jars.glob("spark-kubernetes_*.jar")]
    assert len(archives) == 2
    classes = []
    for jar in archives:
        with zipfile.ZipFile(jar) as archive:
            classes += [
                archive.read(name)
                for name in archive.namelist()
                if name.endswith(".class") and any(part in name for part in PARTS)
            ]
    return b"".join(classes)


def settings_for_spark():
    kubernetes = documents(DEPLOY / "kubernetes" / "configuration.yaml")[0]["data"]["kopitiam.toml"]
    texts = [(DEPLOY / "compose" / "kopitiam.toml").read_text(encoding="utf-8"), kubernetes]
    names = {name for text in texts for name in tomllib.loads(text)["spark"]["conf"]}
    properties = (DEPLOY / "compose" / "spark.properties").read_text(encoding="utf-8").splitlines()
    return sorted(names | {line.split()[0] for line in properties if line.startswith("spark.")})


@pytest.mark.parametrize("name", [*settings_for_spark(), "spark.kubernetes.driver.pod.name"])
def test_spark_knows_every_setting(spelled, name):
    assert all(part.encode() in spelled for part in COMPOSED.get(name, (name,)))


@pytest.mark.parametrize(
    "word",
    [
        "_SPARK_AUTH_SECRET",
        "--properties-file",
        "--work-dir",
        "spark-kubernetes-executor",
        "SPARK_JAVA_OPT_",
        "SPARK_EXECUTOR_POD_NAME",
        "SPARK_EXECUTOR_POD_IP",
        "SPARK_RESOURCE_PROFILE_ID",
        "SPARK_APPLICATION_ID",
    ],
)
def test_spark_has_the_classes_and_options_that_the_files_use(spelled, word):
    assert word.encode() in spelled

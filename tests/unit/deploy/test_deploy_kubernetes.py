"""The manifests: valid by the schemas of Kubernetes and consistent with the configuration."""

import json
from functools import cache
from pathlib import PurePath

import kubernetes_validate
import pytest
import yaml
from deployments import DEPLOY, NODES, documents, parse_kopi, revival, settings_of

FOLDER = DEPLOY / "kubernetes"
NEWEST, OLDEST = "1.34", "1.31"  # from 1.31 on, the pods of a set may be counted from 1
KINDS = ("gateway", "pipeline", "monitor")


@cache
def manifests():
    return [
        (path.name, document)
        for path in sorted(FOLDER.glob("*.yaml"))
        for document in documents(path)
        if document["kind"] != "Kustomization"
    ]


def named(kind, name):
    matches = [item for _, item in manifests() if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    assert len(matches) == 1, (kind, name)
    return matches[0]


def pods(kind):
    """The names of the pods of a set, as Kubernetes gives them."""
    spec = named("StatefulSet", kind)["spec"]
    start = spec["ordinals"]["start"]
    return [f"{kind}-{number}" for number in range(start, start + spec["replicas"])]


def pod_spec(kind):
    return named("StatefulSet", kind)["spec"]["template"]["spec"]


def container(kind):
    return pod_spec(kind)["containers"][0]


def environment(kind, pod):
    """What the container sees: plain values, values of the pod, and the secret's placeholders."""
    secret = named("Secret", "kopitiam")["stringData"]
    of_pod = {"metadata.name": pod, "status.podIP": "10.0.0.7"}
    seen = {}
    for variable in container(kind)["env"]:
        value = variable.get("value")
        if value is None:
            source = variable["valueFrom"]
            if "fieldRef" in source:
                value = of_pod[source["fieldRef"]["fieldPath"]]
            else:
                assert source["secretKeyRef"]["name"] == "kopitiam"
                value = secret[source["secretKeyRef"]["key"]]
        seen[variable["name"]] = expanded(value, seen)
    return seen


def expanded(value, variables):
    for name, known in variables.items():
        value = value.replace(f"$({name})", known)
    assert "$(" not in value
    return value


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(named("ConfigMap", "kopitiam")["data"]["kopitiam.toml"], encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "manifest",
    [pytest.param(each, id=f"{each['kind']}-{each['metadata']['name']}") for _, each in manifests()],
)
def test_every_manifest_is_valid_by_the_schema_of_kubernetes(manifest):
    kubernetes_validate.validate(manifest, NEWEST, strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sets_are_valid_for_an_older_kubernetes_too(kind):
    kubernetes_validate.validate(named("StatefulSet", kind), OLDEST, strict=True)


def test_the_schema_would_refuse_a_misspelled_field():
    service = named("Service", "kopitiam")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service | {"spec": {"selektor": {}}}, NEWEST, strict=True)


def test_the_template_of_executors_is_a_pod_that_fits_its_policy():
    pod = yaml.safe_load(named("ConfigMap", "kopitiam")["data"]["executor.yaml"])
    kubernetes_validate.validate(pod, NEWEST, strict=True)
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "executor"
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_every_manifest_but_the_secret_template_is_applied():
    applied = documents(FOLDER / "kustomization.yaml")[0]["resources"]
    there = {path.name for path in FOLDER.glob("*.yaml")}
    assert sorted(applied) == sorted(there - {"kustomization.yaml", "secret.example.yaml"})


def test_everything_is_in_one_namespace():
    spaced = [each for _, each in manifests() if each["kind"] != "Namespace"]
    assert {each["metadata"]["namespace"] for each in spaced} == {
        named("Namespace", "kopitiam")["metadata"]["name"]
    }


def test_pods_have_the_names_of_the_nodes(config, monkeypatch):
    settings = settings_of(config, environment("monitor", "monitor-1"), monkeypatch)
    assert settings.nodes.kinds == NODES
    assert {pod: kind for kind in KINDS for pod in pods(kind)} == NODES


@pytest.mark.parametrize("name", NODES)
def test_every_node_runs_its_command_under_settings_that_are_accepted(config, name, monkeypatch):
    kind = NODES[name]
    seen = environment(kind, name)
    command, arguments = parse_kopi([expanded(word, seen) for word in container(kind)["args"]])
    assert (command, arguments["name"]) == (kind, name)
    mounts = {mount["mountPath"] for mount in container(kind)["volumeMounts"]}
    assert str(arguments["config"].parent) in mounts

    settings = settings_of(config, seen, monkeypatch)

    assert settings.registry.url.startswith("postgresql://")
    assert settings.bus.url.startswith("amqp://")
    assert str(settings.home) in mounts
    assert ("/mnt/kopitiam" in mounts) == (kind != "monitor")
    volumes = {volume["name"]: volume for volume in pod_spec(kind)["volumes"]}
    assert volumes["home"] == {"name": "home", "emptyDir": {}}
    service = named("StatefulSet", kind)["spec"]["serviceName"]
    assert settings.host == settings.nodes.hosts[name] == f"{name}.{service}.kopitiam.svc"
    if kind == "gateway":
        assert settings.gateway_port(name) == settings.gateway.address[1]
        assert settings.advertised_url(8440) == f"http://{name}.gateways.kopitiam.svc:8440"
        assert settings.gateway.admin_token.get_secret_value() == "change-me"
        settings.gateway.require_guarded()
        assert {"kopitiam", "kopitiam.kopitiam.svc"} <= settings.gateway.host_names
        assert container(kind)["ports"] == [{"name": "http", "containerPort": settings.gateway.address[1]}]
    if kind == "pipeline":
        conf = settings.spark.conf
        assert (conf["spark.driver.host"], conf["spark.kubernetes.driver.pod.name"]) == ("10.0.0.7", name)
        assert conf["spark.kubernetes.container.image"] == container(kind)["image"]
        ports = {port["name"]: str(port["containerPort"]) for port in container(kind)["ports"]}
        assert ports == {"driver": conf["spark.driver.port"], "blocks": conf["spark.blockManager.port"]}


def test_executors_find_the_storage_and_their_template_where_the_pipeline_says(config, monkeypatch):
    settings = settings_of(config, environment("pipeline", "pipeline-1"), monkeypatch)
    conf, volume = settings.spark.conf, "spark.kubernetes.executor.volumes.persistentVolumeClaim.storage"
    claim = named("PersistentVolumeClaim", "storage")["metadata"]["name"]
    assert conf[f"{volume}.options.claimName"] == claim
    assert settings.storage.url == f"file://{conf[f'{volume}.mount.path']}"
    template = PurePath(conf["spark.kubernetes.executor.podTemplateFile"])
    assert template.name in named("ConfigMap", "kopitiam")["data"]
    named("ServiceAccount", conf["spark.kubernetes.authenticate.executor.serviceAccountName"])
    assert conf["spark.kubernetes.namespace"] == "kopitiam"


def test_monitors_may_delete_exactly_the_pods_of_nodes(config, monkeypatch):
    settings = settings_of(config, environment("monitor", "monitor-1"), monkeypatch)
    command = revival(settings, "gateway-2").split()
    assert command == ["kubectl", "delete", "pod", "gateway-2", "--namespace", "kopitiam", "--wait=false"]
    rule = named("Role", "reviver")["rules"][0]
    assert sorted(rule["resourceNames"]) == sorted(NODES)
    assert rule["verbs"] == ["get", "delete"]
    assert container("monitor")["image"] == "kopitiam-monitor:latest"


def test_every_account_that_is_bound_or_used_exists():
    for _, each in manifests():
        if each["kind"] == "RoleBinding":
            named("Role", each["roleRef"]["name"])
            for subject in each["subjects"]:
                named(subject["kind"], subject["name"])
    for kind in KINDS:
        assert named("StatefulSet", kind)["spec"]["template"]["spec"]["serviceAccountName"] == kind
        named("ServiceAccount", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_services_budgets_and_sets_choose_the_same_pods(kind):
    spec = named("StatefulSet", kind)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert named("Service", spec["serviceName"])["spec"]["selector"] == labels
    budget = named("PodDisruptionBudget", kind)["spec"]
    assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (labels, 1)


def test_gateways_are_probed_over_http_and_other_nodes_by_their_state_in_the_registry():
    gateway = container("gateway")
    assert gateway["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert gateway["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    for kind in ("pipeline", "monitor"):
        assert container(kind)["readinessProbe"]["exec"] == {"command": ["entrypoint", "alive"]}
        assert "livenessProbe" not in container(kind), "an unavailable registry restarts no node"


@pytest.mark.parametrize("kind", KINDS)
def test_pods_fit_the_restricted_policy_of_their_namespace(kind):
    pod = named("StatefulSet", kind)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(kind)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_only_gateways_and_spark_accept_connections():
    policies = [each for _, each in manifests() if each["kind"] == "NetworkPolicy"]
    denying = named("NetworkPolicy", "deny-all")["spec"]
    assert denying == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    opened = {
        policy["metadata"]["name"]: {
            port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]
        }
        for policy in policies
        if "ingress" in policy["spec"]
    }
    assert opened == {"clients": {8440}, "spark": {7078, 7079}}


def test_no_secret_is_committed_and_no_registry_is_named():
    text = json.dumps([each for _, each in manifests() if each["kind"] != "Secret"])
    assert "change-me" not in text
    assert {container(kind)["image"] for kind in KINDS} == {"kopitiam:latest", "kopitiam-monitor:latest"}

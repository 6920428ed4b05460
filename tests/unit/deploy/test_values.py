"""Wrong values of the chart are refused by name before anything is installed; odd ones render what is valid."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploy.settings_schema import CHOICES, settings_schema
from service.config_file import load_config
from tests.manifests import DEPLOY, is_core, load_documents, select_kind

CHART = DEPLOY / "helm" / "dragoman"
HELM = shutil.which(os.environ.get("HELM") or "helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed: nothing is rendered")

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
VOLUME = {
    "source": "persistentVolumeClaim",
    "bundles": ["a"],
    "persistentVolumeClaim.claimName": "b",
}


def _with(**changes: Any) -> dict[str, Any]:
    """The default values with some of them changed, by their paths."""
    values = copy.deepcopy(DEFAULTS)
    for path, value in changes.items():
        *sections, name = path.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return values


def _faults(**changes: Any) -> list[str]:
    """Where the schema finds a fault, and what it says."""
    errors = jsonschema.Draft7Validator(SCHEMA).iter_errors(_with(**changes))
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in errors]


def _render(release: str = "dragoman", **changes: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HELM), "template", release, str(CHART), "--values", "-"],
        input=json.dumps(_with(**changes)),  # YAML, too, and every text is one
        check=False,
        capture_output=True,
        text=True,
    )


def _models(**changes: Any) -> dict[str, Any]:
    return {f"models.{name}": value for name, value in {**VOLUME, **changes}.items()}


@pytest.mark.parametrize("values", sorted((DEPLOY / "helm" / "values").glob("*.yaml")))
def test_the_examples_and_the_defaults_are_right(values: Any) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert _faults() == []
    assert _faults(**yaml.safe_load(values.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("imagee", {"tag": "1"}),
        ("image.repository", ""),
        ("image.repository", "name:tag"),
        ("image.repository", "Registry/Name"),
        ("image.tag", "a/b"),
        ("image.digest", "sha256:1"),
        ("imagePullSecrets", ["name"]),
        ("imagePullSecrets", [{"nam": "a"}]),
        ("replicaCount", -1),
        ("replicaCount", "two"),
        ("nameOverride", "Upper"),
        ("fullnameOverride", "a.b"),
        ("fullnameOverride", "1a"),
        ("fullnameOverride", "x" * 54),
        ("config.server.listen", "0.0.0.0:1"),
        ("config.server.drain_seconds", 5),
        ("config.server.num_text_thread", 1),
        ("config.server.num_text_threads", 0),
        ("config.serverr", {"max_stream_items": 1}),
        ("config.log.level", "debug"),
        ("config.scheduler.max_batch_rows", "many"),
        ("config.scheduler.max_batch_rows", 1.5),
        ("config.engine.num_workers", 0),
        ("config.engine.self_test", "maybe"),
        ("config.tracing.endpoint", "collector:4317"),
        ("config.tracing.endpoint", "http://collector"),
        ("extraEnv", [{"nam": "A"}]),
        ("extraEnv", [{"name": "A", "value": 1}]),
        ("drain.seconds", -1),
        ("drain.seconds", 1_000_000),
        ("models.bundles", [""]),
        ("models.bundles", ["../a"]),
        ("models.bundles", ["a:b"]),
        ("models.mountPath", "models"),
        ("models.mountPath", "/models/"),
        ("models.persistentVolumeClaim.claimName", "A_b"),
        ("models.initContainer.image", "a b"),
        ("models.initContainer.sizeLimit", "huge"),
        ("resources.limit", {"cpu": "1"}),
        ("resources.limits.cpu", "abc"),
        ("resources.limits.memory", -1),
        ("resources.limits.memory", "1GB"),
        ("gpu.count", 0),
        ("tolerations", [{"keyy": "a"}]),
        ("tolerations", [{"operator": "exists"}]),
        ("affinity.nodeaffinity", {}),
        ("nodeSelector.a", True),
        ("podAnnotations.a", 1),
        ("priorityClassName", "A b"),
        ("topologySpread.maxSkew", 0),
        ("topologySpread.topologyKeys", []),
        ("podDisruptionBudget.maxUnavailable", -1),
        ("podDisruptionBudget.maxUnavailable", "200%"),
        ("serviceAccount.name", "A_b"),
        ("service.type", "ExternalName"),
        ("service.grpcPort", 0),
        ("networkPolicy.grpcFrom", [{"podselector": {}}]),
        ("networkPolicy.grpcFrom", [{}]),
        ("networkPolicy.egress", [{"port": 53}]),
        ("autoscaling.mode", "hpa"),
        ("autoscaling.minReplicas", 0),
        ("autoscaling.queueSeconds", 0),
        ("autoscaling.keda.serverAddress", "prometheus:9090"),
        ("serviceMonitor.interval", 15),
        ("serviceMonitor.interval", ""),
        ("prometheusRule.runbookUrl", "git.example/runbooks"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(path: str, value: Any) -> None:
    faults = _faults(**{path: value})

    assert faults
    for fault in faults:
        assert path.rpartition(".")[2] in fault


def test_a_source_of_models_is_one_of_four_and_needs_bundles() -> None:
    assert "'pvc' is not one of" in str(_faults(**_models(source="pvc")))
    (fault,) = _faults(**_models(bundles=[]))

    assert fault.startswith("models.bundles: ")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.repository", "registry.example:5000/team/dragoman"),
        ("image.digest", "sha256:" + "0" * 64),
        ("config.engine.num_workers", "auto"),
        ("config.tracing.sample_ratio", 0),
        ("config.tracing.sample_ratio", "0.1"),
        ("config.tracing.endpoint", "http://[fd00::1]:4317/"),
        ("config.log.max_request_lines_per_second", 0),
        ("resources.limits", {"cpu": 0.5, "memory": "1.5Gi", "nvidia.com/gpu": 1}),
        ("podDisruptionBudget.maxUnavailable", "25%"),
        ("networkPolicy.grpcFrom", []),
        ("networkPolicy.egress", [{}]),
        ("autoscaling.queueSeconds", "0.1"),
    ],
)
def test_a_right_value_is_taken(path: str, value: Any) -> None:
    assert _faults(**{path: value}) == []


def test_the_choices_are_those_of_the_server() -> None:
    for (section, name), rule in CHOICES.items():
        for choice in rule.get("enum", ["http://collector:4317", ""]):
            load_config(None, {f"DRAGOMAN_{section}__{name}".upper(): choice})


def test_every_setting_of_the_server_may_be_set_but_those_that_the_chart_sets() -> None:
    sections = settings_schema()["properties"]
    names = {
        f"{section}.{name}" for section in sections for name in sections[section]["properties"]
    }

    assert {"server.keepalive_seconds", "engine.shortlist", "tracing.endpoint"} <= names
    assert not names & {"server.listen", "server.drain_seconds", "models.bundles", "metrics.listen"}


@needs_helm
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models.bundles": ["a"]}, "models.bundles is set, but models.source is embedded"),
        (_models(**{"initContainer.image": "c"}), "models.initContainer is set, but"),
        (_models(**{"persistentVolumeClaim.claimName": ""}), "claimName is required"),
        (_models(source="image", **{"persistentVolumeClaim.claimName": ""}), "reference is required"),
        ({"autoscaling.minReplicas": 5, "autoscaling.maxReplicas": 2}, "minReplicas is more than"),
        ({"autoscaling.queueSeconds": "0.0001"}, "queueSeconds must be at least 0.001"),
        ({"service.grpcPort": 9464}, "are the same"),
        ({"podLabels": {"app.kubernetes.io/name": "a"}}, "podLabels may not have app.kubernetes.io/name"),
        (
            {"extraEnv": [{"name": "DRAGOMAN_SERVER__LISTEN", "value": "0.0.0.0:1"}]},
            "extraEnv sets DRAGOMAN_SERVER__LISTEN, which the chart sets",
        ),
    ],
)  # fmt: skip
def test_values_that_do_not_go_together_are_refused(changes: dict[str, Any], message: str) -> None:
    done = _render(**changes)

    assert done.returncode != 0
    assert message in done.stderr


@needs_helm
def test_a_release_whose_name_no_service_may_have_is_refused() -> None:
    done = _render(release="1st")

    assert done.returncode != 0
    assert "set fullnameOverride" in done.stderr
    assert _render(release="1st", fullnameOverride="first").returncode == 0


@needs_helm
@pytest.mark.parametrize(
    ("release", "changes"),
    [
        ("a.b", {}),
        ("a" + "-x" * 26, {"autoscaling.mode": "keda"}),
        ("on", {"nameOverride": "123", "fullnameOverride": "true"}),
        ("dragoman", {"serviceAccount.name": "123", "priorityClassName": "1", "runtimeClassName": "2"}),
        ("dragoman", _models(**{"persistentVolumeClaim.claimName": "1"})),
        ("dragoman", {"image.tag": "1e3", "topologySpread.topologyKeys": ["true"]}),
        ("dragoman", {"config": None, "resources": None, "imagePullSecrets": [{"name": "1"}]}),
        ("dragoman", {"podAnnotations": {"a": "1"}, "nodeSelector": {"b": "true"}}),
        ("dragoman", {"networkPolicy.grpcFrom": [], "networkPolicy.metricsFrom": []}),
        ("dragoman", {"gpu.enabled": True, "gpu.count": 2, "resources": {}}),
        ("dragoman", {"autoscaling.mode": "prometheus-adapter", "autoscaling.queueSeconds": "0.25"}),
    ],
)  # fmt: skip
def test_odd_values_render_what_kubernetes_takes(release: str, changes: dict[str, Any]) -> None:
    done = _render(release, **changes)

    assert done.returncode == 0, done.stderr
    documents = load_documents(done.stdout)
    for document in filter(is_core, documents):
        kubernetes_validate.validate(document, "1.34", strict=True)
    for document in documents:
        name = document["metadata"]["name"]
        assert isinstance(name, str)
        assert len(name) <= 63
        assert document["kind"] != "Service" or "." not in name


@needs_helm
def test_where_spans_are_sent_the_way_is_open() -> None:
    own = {"ports": [{"port": 443}]}
    done = _render(
        **{"config.tracing.endpoint": "http://otel.example:4317/", "networkPolicy.egress": [own]}
    )
    policy = select_kind(load_documents(done.stdout), "NetworkPolicy")
    resolver = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]

    assert policy["spec"]["egress"] == [
        {"ports": resolver}, {"ports": [{"port": 4317, "protocol": "TCP"}]}, own
    ]  # fmt: skip


@needs_helm
@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort", "ClusterIP"])
def test_metrics_are_inside_of_the_cluster_only(kind: str) -> None:
    documents = load_documents(_render(**{"service.type": kind}).stdout)
    services = [each["spec"] for each in documents if each["kind"] == "Service"]
    with_metrics = [
        each["type"] for each in services for port in each["ports"] if port["name"] == "metrics"
    ]

    assert with_metrics == ["ClusterIP"]
    assert kind in [each["type"] for each in services]


@needs_helm
@pytest.mark.parametrize(
    ("name", "job"), [("", None), ("translator", "dragoman-translator"), ("dragoman-de", None)]
)
def test_the_alerts_find_the_job_whatever_the_release_is_called(name: str, job: str | None) -> None:
    done = _render(**{"fullnameOverride": name, "serviceMonitor.enabled": True})
    (endpoint,) = select_kind(load_documents(done.stdout), "ServiceMonitor")["spec"]["endpoints"]
    relabelings = [{"targetLabel": "job", "replacement": job}] if job else None

    assert endpoint.get("relabelings") == relabelings


@needs_helm
@pytest.mark.parametrize(
    ("address", "folder"),
    [("", "docs/runbooks"), ("https://git.example/runbooks/", "https://git.example/runbooks")],
)
def test_alerts_name_their_runbooks_where_people_find_them(address: str, folder: str) -> None:
    done = _render(**{"prometheusRule.enabled": True, "prometheusRule.runbookUrl": address})
    groups = select_kind(load_documents(done.stdout), "PrometheusRule")["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]

    assert alerts
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"{folder}/{alert['alert']}.md"

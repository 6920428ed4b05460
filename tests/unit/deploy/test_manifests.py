"""What the chart renders: valid for Kubernetes and the operators, and consistent with the server."""

from __future__ import annotations

import functools
import importlib
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from service import app
from service.config_file import load_config
from tests.manifests import DEPLOY, RENDERED, is_core, load_rendered, select_kind

ROOT = Path(__file__).parents[3]
OPERATORS = {
    "PrometheusRule": "prometheus_operator.v1",
    "ScaledObject": "keda.v1alpha1",
    "ServiceMonitor": "prometheus_operator.v1",
}
VERSIONS = {"models-image": ("1.34", "1.37")}
"""Of Kubernetes, where a rendering needs a newer one than the chart does."""


def _deployments() -> list[tuple[str, dict[str, Any]]]:
    return [(name, select_kind(load_rendered(name), "Deployment")) for name in RENDERED]


def _pod(deployment: dict[str, Any]) -> dict[str, Any]:
    return deployment["spec"]["template"]["spec"]


def _settings(name: str) -> dict[str, str]:
    return select_kind(load_rendered(name), "ConfigMap")["data"]


def _refusing_unknown_keys(schema: Any) -> Any:
    """Close every object whose properties are listed."""
    if isinstance(schema, list):
        return [_refusing_unknown_keys(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _refusing_unknown_keys(value) for key, value in schema.items()}
    if "properties" in schema and schema.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


@functools.cache
def _operator_validator(kind: str) -> jsonschema.Draft202012Validator:
    """The schema of an operator's resource, from the Python classes made from its definition."""
    model = getattr(importlib.import_module(f"cloudcoil.models.{OPERATORS[kind]}"), kind)
    return jsonschema.Draft202012Validator(_refusing_unknown_keys(model.model_json_schema()))


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for name in RENDERED for version in VERSIONS.get(name, ("1.27", "1.37"))],
)
def test_kubernetes_knows_every_field(name: str, version: str) -> None:
    documents = [document for document in load_rendered(name) if is_core(document)]
    assert documents
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_would_be_found() -> None:
    deployment = select_kind(load_rendered("default"), "Deployment")
    _pod(deployment)["terminationGracePeriod"] = 30
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.34", strict=True)


@pytest.mark.parametrize("name", ["keda", "prometheus-adapter"])
def test_the_operators_know_every_field(name: str) -> None:
    documents = [document for document in load_rendered(name) if not is_core(document)]
    assert documents
    for document in documents:
        _operator_validator(document["kind"]).validate(document)


def test_a_field_that_an_operator_does_not_know_would_be_found() -> None:
    monitor = select_kind(load_rendered("keda"), "ServiceMonitor")
    monitor["spec"]["endpoints"][0]["intervall"] = "3s"
    with pytest.raises(jsonschema.ValidationError):
        _operator_validator("ServiceMonitor").validate(monitor)


@pytest.mark.parametrize("name", RENDERED)
def test_the_server_takes_every_setting(name: str) -> None:
    config = load_config(None, _settings(name))

    assert config.server.listen == "0.0.0.0:50051"
    assert config.metrics.listen == "0.0.0.0:9464"


def test_bundles_of_a_volume_are_directories_below_its_mount() -> None:
    config = load_config(None, _settings("models-claim"))
    (container,) = _pod(select_kind(load_rendered("models-claim"), "Deployment"))["containers"]

    assert config.models.bundles == ("/models/en-pt", "/models/my-model")
    assert container["volumeMounts"][0] == {
        "name": "models", "mountPath": "/models", "readOnly": True
    }  # fmt: skip


@pytest.mark.parametrize("name", RENDERED)
def test_the_grace_period_holds_all_that_the_server_needs_to_drain(name: str) -> None:
    pod = _pod(select_kind(load_rendered(name), "Deployment"))
    command = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    server = load_config(None, _settings(name)).server
    needed = (
        float(command[1])
        + server.endpoint_removal_seconds
        + app._MAX_SETTLE_SECONDS
        + server.drain_seconds
        + app._MAX_REFUSE_SECONDS
        + app._FLUSH_SECONDS
    )

    assert needed + 5 <= pod["terminationGracePeriodSeconds"] <= needed + 10


@pytest.mark.parametrize(("name", "deployment"), _deployments())
def test_the_pods_obey_the_restricted_standard(name: str, deployment: dict[str, Any]) -> None:
    pod = _pod(deployment)

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
        assert "hostPort" not in str(container.get("ports", ""))
    kinds = {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "emptyDir", "image", "persistentVolumeClaim", "secret"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


@pytest.mark.parametrize("name", RENDERED)
def test_no_pod_gets_a_token_of_its_account(name: str) -> None:
    documents = load_rendered(name)

    assert _pod(select_kind(documents, "Deployment"))["automountServiceAccountToken"] is False
    assert select_kind(documents, "ServiceAccount")["automountServiceAccountToken"] is False


def test_the_probes_ask_for_what_they_are_about() -> None:
    (container,) = _pod(select_kind(load_rendered("default"), "Deployment"))["containers"]
    warm = {"port": 50051, "service": "dragoman.v1.TranslationService"}

    assert container["startupProbe"]["grpc"] == warm
    assert container["readinessProbe"]["grpc"] == warm
    assert container["livenessProbe"]["grpc"] == {"port": 50051}


@pytest.mark.parametrize("name", RENDERED)
def test_everything_selects_the_same_pods(name: str) -> None:
    documents = load_rendered(name)
    labels = {"app.kubernetes.io/name": "dragoman", "app.kubernetes.io/instance": "dragoman"}
    deployment = select_kind(documents, "Deployment")
    services = [each["spec"]["selector"] for each in documents if each["kind"] == "Service"]

    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert labels.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert services == [labels, labels]


def test_nothing_leaves_a_pod_unless_it_is_allowed() -> None:
    policy = select_kind(load_rendered("default"), "NetworkPolicy")["spec"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []


@pytest.mark.parametrize("name", ["keda", "prometheus-adapter"])
def test_what_an_autoscaler_counts_is_not_in_the_deployment(name: str) -> None:
    documents = load_rendered(name)

    assert "replicas" not in select_kind(documents, "Deployment")["spec"]
    assert [
        each["kind"] for each in documents if "Scale" in each["kind"] or "Autosc" in each["kind"]
    ]


def test_the_adapter_gives_the_metrics_that_the_autoscaler_asks_for() -> None:
    adapter = yaml.safe_load((DEPLOY / "prometheus-adapter.yaml").read_text(encoding="utf-8"))
    scaler = select_kind(load_rendered("prometheus-adapter"), "HorizontalPodAutoscaler")
    given = {rule["name"]["as"] for rule in adapter["rules"]["custom"]}

    assert {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]} == given


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((DEPLOY / "helm/dragoman/Chart.yaml").read_text(encoding="utf-8"))
    overlay = (DEPLOY / "kustomize/overlays/gpu/kustomization.yaml").read_text(encoding="utf-8")
    (tag,) = (image["newTag"] for image in yaml.safe_load(overlay)["images"])
    (container,) = _pod(select_kind(load_rendered("default"), "Deployment"))["containers"]

    assert chart["version"] == chart["appVersion"] == project["version"]
    assert tag == f"{project['version']}-gpu"
    assert container["image"] == f"dragoman:{project['version']}"

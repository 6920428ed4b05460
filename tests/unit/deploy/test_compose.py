"""The parts of the compose file fit: what is mounted exists, what is asked for is there, nothing is open to the world.

Grafana itself does not run in any test; its provisioning files are held to the keys that Grafana documents.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import jsonschema
import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
ROOT = DEPLOY.parent
TEXT: dict[str, str] = {"type": "string"}
FLAG: dict[str, str] = {"type": "boolean"}
NUMBER: dict[str, str] = {"type": "integer"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


DATA_SOURCES = _object(
    ["apiVersion", "datasources"],
    apiVersion={"const": 1},
    prune=FLAG,
    datasources={
        "type": "array",
        "items": _object(
            ["name", "type", "access"],
            name=TEXT,
            type=TEXT,
            access={"enum": ["proxy", "direct"]},
            orgId=NUMBER,
            uid=TEXT,
            url=TEXT,
            isDefault=FLAG,
            editable=FLAG,
            version=NUMBER,
            jsonData=_object(
                [],
                httpMethod={"enum": ["GET", "POST"]},
                timeInterval={"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
                manageAlerts=FLAG,
                prometheusType={"enum": ["Prometheus", "Mimir", "Thanos", "Cortex"]},
            ),
        ),
    },
)
PROVIDERS = _object(
    ["apiVersion", "providers"],
    apiVersion={"const": 1},
    providers={
        "type": "array",
        "items": _object(
            ["name", "type", "options"],
            name=TEXT,
            orgId=NUMBER,
            folder=TEXT,
            folderUid=TEXT,
            type={"const": "file"},
            disableDeletion=FLAG,
            updateIntervalSeconds=NUMBER,
            allowUiUpdates=FLAG,
            options=_object(["path"], path=TEXT, foldersFromFilesStructure=FLAG),
        ),
    },
)


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


COMPOSE = _yaml(DEPLOY / "compose.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]
SCRAPES = _yaml(DEPLOY / "prometheus" / "prometheus.yml")
SOURCE = _yaml(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yaml")
PROVIDER = _yaml(DEPLOY / "grafana" / "provisioning" / "dashboards" / "dragoman.yaml")


def _mounts(service: str) -> dict[PurePosixPath, Path]:
    """Files and folders of the checkout, by their place in the container."""
    return {
        PurePosixPath(target): (DEPLOY / source).resolve()
        for source, target, *_ in (each.split(":") for each in SERVICES[service]["volumes"])
        if source.startswith(".")
    }


def test_there_are_three_services() -> None:
    assert set(SERVICES) == {"dragoman", "prometheus", "grafana"}


@pytest.mark.parametrize("service", ["prometheus", "grafana"])
def test_what_is_mounted_exists_and_is_read_only(service: str) -> None:
    assert _mounts(service)
    for path in _mounts(service).values():
        assert path.exists(), path
    for volume in SERVICES[service]["volumes"]:
        assert volume.endswith(":ro") or volume.split(":")[0] in COMPOSE["volumes"]


def test_nothing_listens_for_other_machines() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_images_of_others_have_a_version() -> None:
    for name in ("prometheus", "grafana"):
        assert re.search(r":v?\d+\.\d+\.\d+\}$", SERVICES[name]["image"])


def test_the_server_is_built_from_the_dockerfile_and_hardened() -> None:
    server = SERVICES["dragoman"]
    assert (DEPLOY / server["build"]["context"]).resolve() == ROOT
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert f" AS {server['build']['target']}\n" in dockerfile
    for name in server["build"]["args"]:
        assert f"ARG {name}" in dockerfile
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]


def test_prometheus_scrapes_the_server_where_it_tells_its_metrics() -> None:
    (job,) = SCRAPES["scrape_configs"]
    assert "dragoman" in job["job_name"]
    (discovery,) = job["dns_sd_configs"]
    assert discovery["names"] == ["dragoman"]
    assert f"DRAGOMAN_METRICS__LISTEN=0.0.0.0:{discovery['port']}" in (
        ROOT / "Dockerfile"
    ).read_text("utf-8")


def test_prometheus_finds_its_configuration_and_its_rules() -> None:
    mounts = _mounts("prometheus")
    options = dict(option.split("=", 1) for option in SERVICES["prometheus"]["command"])
    config = PurePosixPath(options["--config.file"])
    assert mounts[config] == DEPLOY / "prometheus" / "prometheus.yml"
    (pattern,) = map(PurePosixPath, SCRAPES["rule_files"])
    assert list(mounts[pattern.parent].glob(pattern.name))


def test_grafanas_provisioning_has_only_keys_that_it_knows() -> None:
    jsonschema.validate(SOURCE, DATA_SOURCES)
    jsonschema.validate(PROVIDER, PROVIDERS)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**SOURCE, "datasource": []}, DATA_SOURCES)


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    (source,) = SOURCE["datasources"]
    port = SERVICES["prometheus"]["ports"][0].rpartition(":")[2]
    assert source["url"] == f"http://prometheus:{port}"
    assert source["jsonData"]["timeInterval"] == SCRAPES["global"]["scrape_interval"]
    (provider,) = PROVIDER["providers"]
    mounts = _mounts("grafana")
    dashboards = mounts[PurePosixPath(provider["options"]["path"])]
    home = PurePosixPath(
        SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    )
    assert mounts[home.parent] == dashboards
    assert json.loads((dashboards / home.name).read_text("utf-8"))["uid"] == "dragoman-operators"
    assert mounts[PurePosixPath("/etc/grafana/provisioning")] == DEPLOY / "grafana" / "provisioning"


def test_visitors_of_grafana_may_look_only() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert all(isinstance(value, str) for value in environment.values())

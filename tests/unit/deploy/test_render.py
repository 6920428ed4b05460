"""One source of truth: the committed renderings and the Kustomize overlays are what the chart says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import render
from deploy.settings_schema import with_settings
from tests.manifests import DEPLOY, load_documents, load_rendered, select_kind

HELM = shutil.which(os.environ.get("HELM") or "helm")
KUBECTL = shutil.which("kubectl")
needs_helm = pytest.mark.skipif(
    HELM is None, reason="helm is not installed: what is committed is taken as it is"
)
needs_kubectl = pytest.mark.skipif(
    KUBECTL is None, reason="kubectl is not installed: the overlays are not built"
)
CHART = DEPLOY / "helm" / "dragoman"


def _template(*options: str, release: str = "dragoman") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HELM), "template", release, str(CHART), *options],
        check=False,
        capture_output=True,
        text=True,
    )


def _build(directory: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(KUBECTL), "kustomize", str(directory)], check=True, capture_output=True, text=True
    )
    return load_documents(done.stdout)


def _comparable(documents: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name, without what tells the versions of the settings apart: a suffix here, an annotation there."""
    found = {}
    for document in documents:
        text = re.sub(r"\bdragoman-[a-z0-9]{10}\b", "dragoman", yaml.safe_dump(document))
        each = yaml.safe_load(text)
        if each["kind"] == "ConfigMap":
            each["metadata"].pop("labels", None)
        if each["kind"] == "Deployment":
            each["spec"]["template"]["metadata"].pop("annotations", None)
        found[each["kind"], each["metadata"]["name"]] = each
    return found


def test_nothing_was_edited_since_the_chart_was_rendered() -> None:
    assert render.find_stale() == [], "run `make manifests` (needs helm)"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("helm/dragoman/templates/service.yaml", "edited"),
        ("helm/dragoman/templates/new.yaml", "new"),
        ("prometheus/rules/dragoman-alerts.yml", "edited"),
        ("helm/values/new.yaml", "new"),
        ("rendered/cpu.yaml", "edited"),
        ("kustomize/base/service.yaml", None),
    ],
)
def test_an_edited_a_new_and_a_lost_file_would_be_found(
    path: str, text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "deploy"
    for name in ("helm", "kustomize", "prometheus/rules", "rendered"):
        shutil.copytree(DEPLOY / name, copy / name, symlinks=True)
    shutil.copy(DEPLOY / "render.py", copy)
    for name, value in {
        "_DEPLOY": copy,
        "_CHART": copy / "helm" / "dragoman",
        "_VALUES": copy / "helm" / "values",
        "__file__": str(copy / "render.py"),
    }.items():
        monkeypatch.setattr(render, name, value)
    assert render.find_stale() == []

    (copy / path).unlink(missing_ok=True)
    if text is not None:
        (copy / path).write_text(text, encoding="utf-8")

    found = path.replace("prometheus/rules", "helm/dragoman/rules")
    assert render.find_stale() == [found]


def test_the_schema_of_the_settings_is_that_of_the_server() -> None:
    path = DEPLOY / render.SCHEMA

    assert with_settings(path) == path.read_text(encoding="utf-8"), "run `make manifests`"


@needs_helm
def test_rendering_again_changes_nothing() -> None:
    files = render.render()

    assert {name: (DEPLOY / name).read_text(encoding="utf-8") for name in files} == files


@needs_helm
def test_no_rendering_is_left_of_values_that_went() -> None:
    files = {name for name in render.render() if name.startswith("rendered/")}

    assert render.SUMS in files
    assert {f"rendered/{path.name}" for path in (DEPLOY / "rendered").iterdir()} == files


@needs_helm
def test_settings_keep_their_digits() -> None:
    done = _template(
        "--set", "config.scheduler.max_cache_bytes=268435456,config.engine.self_test=false"
    )
    data = select_kind(load_documents(done.stdout), "ConfigMap")["data"]

    assert data["DRAGOMAN_SCHEDULER__MAX_CACHE_BYTES"] == "268435456"
    assert data["DRAGOMAN_ENGINE__SELF_TEST"] == "false"


@needs_helm
def test_a_second_release_has_other_names_and_selects_its_own_pods() -> None:
    done = _template(release="second")
    documents = load_documents(done.stdout)

    assert select_kind(documents, "Deployment")["metadata"]["name"] == "second-dragoman"
    for service in (each for each in documents if each["kind"] == "Service"):
        assert service["spec"]["selector"]["app.kubernetes.io/instance"] == "second"


@needs_kubectl
@pytest.mark.parametrize("name", ["cpu", "gpu", "dev"])
def test_an_overlay_is_the_chart_with_the_values_of_that_name(name: str) -> None:
    built = _build(DEPLOY / "kustomize" / "overlays" / name)

    assert _comparable(built) == _comparable(load_rendered(name))


@needs_kubectl
@pytest.mark.parametrize("name", ["keda", "prometheus-adapter"])
def test_a_component_is_the_chart_with_the_values_of_that_name(name: str, tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "kustomize", tmp_path / "kustomize")
    overlay = tmp_path / "kustomize" / "overlays" / "tried"
    overlay.mkdir()
    text = f"resources: [../../base]\ncomponents: [../../components/{name}]\n"
    (overlay / "kustomization.yaml").write_text(text, encoding="utf-8")

    assert _comparable(_build(overlay)) == _comparable(load_rendered(name))


def test_without_helm_there_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM", "/nowhere/helm")
    with pytest.raises(render.HelmMissingError, match="HELM="):
        render.render()

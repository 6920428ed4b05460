"""The manifests in `deploy/`, read for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
RENDERED = tuple(sorted(path.stem for path in (DEPLOY / "rendered").glob("*.yaml")))
"""Names of the committed renderings of the chart."""

_KUBERNETES = {"v1", "apps/v1", "policy/v1", "networking.k8s.io/v1", "autoscaling/v2"}


def load_rendered(name: str) -> list[dict[str, Any]]:
    """Read one committed rendering."""
    return load_documents((DEPLOY / "rendered" / f"{name}.yaml").read_text(encoding="utf-8"))


def load_documents(text: str) -> list[dict[str, Any]]:
    """Read the documents of a YAML text."""
    return [document for document in yaml.safe_load_all(text) if document]


def select_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Find the one document of a kind."""
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def is_core(document: dict[str, Any]) -> bool:
    """Whether Kubernetes itself knows the kind, without an operator."""
    return document["apiVersion"] in _KUBERNETES

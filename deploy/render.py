"""Renders the Helm chart, the one source of what runs on Kubernetes, into files that need no Helm.

`deploy/rendered/` has the chart under each file of `deploy/helm/values/`: what the tests validate, and what
`kubectl apply -f` takes. `deploy/kustomize/base` and the resources of `deploy/kustomize/components/` are made of the
same output. `make manifests` writes them; a test repeats it and finds no change.

`deploy/rendered/SHA256SUMS` holds the sums of all that went in and all that came out, so that a rendering that is older
than the chart is found without Helm, too.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.settings_schema import with_settings

__all__ = ["SCHEMA", "SUMS", "HelmMissingError", "find_stale", "render", "write"]

SCHEMA = "helm/dragoman/values.schema.json"
SUMS = "rendered/SHA256SUMS"

_DEPLOY = Path(__file__).resolve().parent
_CHART = _DEPLOY / "helm" / "dragoman"
_VALUES = _DEPLOY / "helm" / "values"
_NAME = "dragoman"
_HEAD = "# Rendered from deploy/helm/dragoman by `make manifests`: change it there.\n"
_WATCHED = ("prometheusrule", "servicemonitor")
_COMPONENTS = {"prometheus-adapter": ("hpa", *_WATCHED), "keda": ("scaledobject", *_WATCHED)}
"""Which templates a component takes from the rendering of the same name."""
_CHECKSUM = re.compile(
    r" +annotations:\n +# A change of settings[^\n]*\n +checksum/config: [^\n]*\n"
)


class HelmMissingError(RuntimeError):
    """There is no helm to render with."""


def render() -> dict[str, str]:
    """Render everything with Helm: the content of each file by its path below `deploy/`.

    Raises:
        HelmMissingError: Neither `$HELM` nor `helm` on the path is a program.
        subprocess.CalledProcessError: Helm refuses the chart or the values.
    """
    renderings = {path.stem: _template(path) for path in sorted(_VALUES.glob("*.yaml"))}
    default = _template(None)
    files = {
        f"rendered/{name}.yaml": _HEAD + "".join(f"---\n{text}" for text in documents.values())
        for name, documents in {"default": default, **renderings}.items()
    }
    files.update(_kustomize_base(default))
    for component, templates in _COMPONENTS.items():
        for template in templates:
            path = f"kustomize/components/{component}/{template}.yaml"
            files[path] = _HEAD + renderings[component][template]
    sums = {name: _sum(text.encode()) for name, text in files.items()} | _sums_of_inputs()
    files[SUMS] = "".join(f"{each}  {name}\n" for name, each in sorted(sums.items()))
    return files


def find_stale() -> list[str]:
    """Name what is not as it was when the chart was rendered last: what was edited, is new, or is gone."""
    lines = (_DEPLOY / SUMS).read_text(encoding="utf-8").splitlines()
    noted = {name: each for each, name in (line.split("  ", 1) for line in lines)}
    found = _sums_of_inputs()
    for name in noted.keys() - found.keys():
        path = _DEPLOY / name
        found[name] = _sum(path.read_bytes()) if path.is_file() else ""
    return sorted(name for name in found if found[name] != noted.get(name))


def write(files: Mapping[str, str], directory: Path = _DEPLOY) -> None:
    """Write the files below a directory."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _sums_of_inputs() -> dict[str, str]:
    chart = [path for path in _CHART.rglob("*") if path.is_file()]
    rules = list((_CHART / "rules").glob("*"))  # behind a link
    paths = {*chart, *rules, *_VALUES.glob("*.yaml"), Path(__file__)}
    found = {path.relative_to(_DEPLOY).as_posix(): _sum(path.read_bytes()) for path in paths}
    del found[SCHEMA]  # it refuses values, and changes nothing
    return found


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _template(values: Path | None) -> dict[str, str]:
    """Render the chart: one text for each template that gives any, by the template's name."""
    helm = shutil.which(os.environ.get("HELM") or "helm")
    if helm is None:
        raise HelmMissingError("helm is not installed; name it with HELM=/path/to/helm.")
    command = [helm, "template", _NAME, str(_CHART), "--namespace", _NAME]
    command += ["--kube-version", "1.34.0"]
    if values is not None:
        command += ["--values", str(values)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    pattern = r"^---\n# Source: dragoman/templates/([a-z-]+)\.yaml\n(.*?)(?=^---\n|\Z)"
    found = re.findall(pattern, output, flags=re.MULTILINE | re.DOTALL)
    return {name: text.rstrip() + "\n" for name, text in sorted(found)}


def _kustomize_base(documents: Mapping[str, str]) -> dict[str, str]:
    """The base: as rendered, but for the settings, which Kustomize names by their content by itself."""
    settings = re.findall(r'^  (DRAGOMAN_\w+): "(.*)"$', documents["configmap"], flags=re.MULTILINE)
    deployment, removed = _CHECKSUM.subn("", documents["deployment"])
    if removed != 1 or not settings:
        raise ValueError("The rendered Deployment or ConfigMap is not as expected.")
    resources = {**documents, "deployment": deployment}
    del resources["configmap"]
    kustomization = [
        "apiVersion: kustomize.config.k8s.io/v1beta1",
        "kind: Kustomization",
        "resources:",
        *(f"  - {name}.yaml" for name in resources),
        "configMapGenerator:",
        f"  - name: {_NAME}",
        "    literals:",
        *(f"      - '{key}={value}'" for key, value in settings),
    ]
    files = {f"kustomize/base/{name}.yaml": _HEAD + text for name, text in resources.items()}
    files["kustomize/base/kustomization.yaml"] = _HEAD + "\n".join(kustomization) + "\n"
    return files


if __name__ == "__main__":
    try:
        write({SCHEMA: with_settings(_DEPLOY / SCHEMA)})
        write(render())
    except HelmMissingError as error:
        sys.exit(f"render: {error}")

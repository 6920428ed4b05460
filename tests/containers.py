"""The image of `make image`, for tests that run it."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from deploy.loadtest.servers import DOCKER

REPOSITORY = Path(__file__).parents[1]
_PROJECT = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
VERSION: str = tomllib.loads(_PROJECT)["project"]["version"]
IMAGE = os.environ.get("DRAGOMAN_IMAGE", f"dragoman:{VERSION}")


def require_image() -> None:
    """Skip the test where there is no Docker or no image."""
    if not DOCKER:
        pytest.skip("Docker is not installed")
    done = subprocess.run([DOCKER, "image", "inspect", IMAGE], check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"there is no image {IMAGE}: run `make image`, or name one in DRAGOMAN_IMAGE")

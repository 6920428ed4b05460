"""The README names every setting, metric and option that exists, with the default that it has."""

import argparse
import dataclasses
import importlib
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import dragoman
from service.config import Config
from service.metrics import PrometheusObserver

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def settings() -> dict[str, object]:
    return {
        f"{section.name}.{field.name}": field.default
        for section in dataclasses.fields(Config)
        for field in dataclasses.fields(section.default_factory)
    }


def as_written(value: object) -> str:
    if value is None:
        return '"auto"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return "[]" if value == () else f'"{value}"'


def test_every_setting_is_in_the_table_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \| (.+?) \| .+ \|$", README, re.MULTILINE)

    assert dict(rows) == {name: as_written(value) for name, value in settings().items()}


@pytest.mark.parametrize("command", dragoman._COMMANDS)
def test_every_option_of_a_command_is_described(command: str) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(f"commands.{command}").add_arguments(parser)
    start = README.index(f"**`dragoman {command}")
    section = re.split(r"\n\*\*`|\n## ", README[start + 4 :])[0]

    for action in parser._actions:
        for option in action.option_strings:
            assert f"`{option}" in section, f"{option} of `dragoman {command}` is not in the README"


def test_every_metric_is_in_the_table() -> None:
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
    }

    ours = {name for name in names if name.startswith(("dragoman_", "grpc_"))}
    assert ours == set(re.findall(r"`((?:dragoman|grpc)_\w+)`", README))

"""The wire format: the descriptor never changes by accident, and the committed stubs are those of the proto file."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.rpc import status_pb2

from protos.dragoman.v1 import translation_pb2
from tests.golden_files import assert_matches_golden

REPOSITORY = Path(__file__).parents[2]
PROTO = "protos/dragoman/v1/translation.proto"
TYPE_NAMES = {
    getattr(FieldDescriptor, name): name[5:].lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def _field_line(field: FieldDescriptor) -> str:
    kind = TYPE_NAMES[field.type]
    if field.message_type:
        kind = field.message_type.full_name
    if field.enum_type:
        kind = field.enum_type.full_name
    label = "repeated " if field.is_repeated else ""
    presence = "optional " if field.has_presence and not field.message_type else ""
    return f"  {label}{presence}{kind} {field.name} = {field.number}"


def _describe() -> str:
    file = translation_pb2.DESCRIPTOR
    lines = [f"package {file.package}"]
    for service in file.services_by_name.values():
        lines.append(f"service {service.full_name}")
        lines += [
            f"  {method.name}({'stream ' * method.client_streaming}{method.input_type.full_name})"
            f" -> {'stream ' * method.server_streaming}{method.output_type.full_name}"
            for method in service.methods
        ]
    messages: list[Descriptor] = list(file.message_types_by_name.values())
    for message in messages:
        lines.append(f"message {message.full_name}")
        lines += [_field_line(field) for field in message.fields]
    for enum in file.enum_types_by_name.values():
        lines.append(f"enum {enum.full_name}")
        lines += [f"  {value.name} = {value.number}" for value in enum.values]
    return "\n".join(lines) + "\n"


def test_the_descriptor_is_the_golden_one() -> None:
    assert_matches_golden("translation_descriptor.txt", _describe())


def test_every_field_says_whether_it_is_required() -> None:
    lines = (REPOSITORY / PROTO).read_text(encoding="utf-8").splitlines()
    inside_message = False
    comment: list[str] = []
    for line in lines:
        inside_message = line.startswith("message ") or (inside_message and line != "}")
        stripped = line.strip()
        if stripped.startswith("//"):
            comment.append(stripped)
            continue
        if inside_message and re.search(r" = \d+;$", line):
            assert comment, line
            assert re.match(r"// (Required|Optional|Output only)\.", comment[0]), line
        comment = []


@pytest.mark.skipif(
    "grpcio-tools" not in {d.metadata["Name"] for d in importlib.metadata.distributions()},
    reason="grpcio-tools is in the dev extra only",
)
def test_regenerating_the_stubs_changes_nothing(tmp_path: Path) -> None:
    site_packages = Path(status_pb2.__file__).parents[2]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"-I{site_packages}"]
    command += [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([*command, PROTO], cwd=REPOSITORY, check=True)
    for name in ("translation_pb2.py", "translation_pb2.pyi", "translation_pb2_grpc.py"):
        committed = (REPOSITORY / "protos/dragoman/v1" / name).read_text(encoding="utf-8")
        assert (tmp_path / "protos/dragoman/v1" / name).read_text(encoding="utf-8") == committed

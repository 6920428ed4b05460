from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.bundle import (
    FORMAT_VERSION,
    Architecture,
    BundleError,
    Manifest,
    describe_file,
    load_bundle,
    write_manifest,
)
from tests.builders import make_manifest

CONTENTS = {
    "encoder.onnx": b"encoder",
    "decoder.onnx": b"decoder",
    "weights.bin": bytes(range(256)) * 9,
    "tokenizer.spm": b"pieces",
}


def manifest_of(directory: Path) -> Manifest:
    return make_manifest(
        architecture=Architecture(
            num_encoder_layers=6,
            num_decoder_layers=2,
            num_heads=8,
            head_size=32,
            d_model=256,
            vocab_size=32000,
        ),
        files={name: describe_file(directory / name) for name in CONTENTS},
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for name, content in CONTENTS.items():
        (bundle / name).write_bytes(content)
    write_manifest(bundle, manifest_of(bundle))
    return bundle


def edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "manifest.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def faults_of(directory: Path) -> tuple[str, ...]:
    with pytest.raises(BundleError) as caught:
        load_bundle(directory)
    assert str(directory) in str(caught.value)
    assert all(fault in str(caught.value) for fault in caught.value.faults)
    return caught.value.faults


def test_a_whole_bundle_loads(directory: Path) -> None:
    bundle = load_bundle(directory)
    assert bundle.manifest == manifest_of(directory)
    assert bundle.encoder_path.read_bytes() == b"encoder"
    assert bundle.decoder_path.read_bytes() == b"decoder"
    assert bundle.source_tokenizer_path == directory / "tokenizer.spm"
    assert bundle.target_tokenizer_path == directory / "tokenizer.spm"


def test_writing_a_manifest_leaves_nothing_else_behind(directory: Path) -> None:
    assert {path.name for path in directory.iterdir()} == {*CONTENTS, "manifest.json"}


def test_a_directory_that_is_not_there_is_one_clear_fault(tmp_path: Path) -> None:
    assert faults_of(tmp_path / "nothing") == (
        "`manifest.json` cannot be read: No such file or directory",
    )


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_a_manifest_that_is_no_object_is_refused(directory: Path, content: bytes) -> None:
    (directory / "manifest.json").write_bytes(content)
    assert len(faults_of(directory)) == 1


def test_a_missing_file_is_named(directory: Path) -> None:
    (directory / "weights.bin").unlink()
    assert faults_of(directory) == ("file 'weights.bin' is missing",)


def test_a_truncated_file_is_named_with_both_sizes(directory: Path) -> None:
    (directory / "weights.bin").write_bytes(b"short")
    size, digest = faults_of(directory)
    assert size == "file 'weights.bin' has 5 bytes, but must have 2304"
    assert "SHA-256" in digest


def test_one_changed_byte_is_found(directory: Path) -> None:
    (directory / "weights.bin").write_bytes(CONTENTS["weights.bin"][:-1] + b"x")
    (fault,) = faults_of(directory)
    assert fault.startswith("file 'weights.bin' has SHA-256")


def test_a_directory_in_the_place_of_a_file_is_refused(directory: Path) -> None:
    (directory / "weights.bin").unlink()
    (directory / "weights.bin").mkdir()
    assert faults_of(directory) == ("file 'weights.bin' is missing",)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_named(directory: Path) -> None:
    (directory / "weights.bin").chmod(0)
    assert faults_of(directory) == ("file 'weights.bin' cannot be read: Permission denied",)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "c:x", "manifest.json"]
)
def test_a_name_that_is_not_inside_the_directory_is_refused(directory: Path, name: str) -> None:
    (directory.parent / "secret").write_bytes(b"secret")
    entry = dataclasses.asdict(describe_file(directory / "weights.bin"))
    edit(directory, lambda fields: fields["files"].update({name: entry}))
    assert faults_of(directory) == (f"file {name!r} is not a plain name inside the bundle",)


def test_a_link_that_leads_outside_is_refused(directory: Path) -> None:
    outside = directory.parent / "outside.bin"
    outside.write_bytes(CONTENTS["weights.bin"])
    (directory / "weights.bin").unlink()
    (directory / "weights.bin").symlink_to(outside)
    assert faults_of(directory) == ("file 'weights.bin' leads outside the bundle",)


def test_a_link_inside_and_a_linked_bundle_are_fine(directory: Path) -> None:
    (directory / "weights.bin").rename(directory / "weights.1")
    (directory / "weights.bin").symlink_to("weights.1")
    linked = directory.parent / "linked"
    linked.symlink_to(directory)
    assert load_bundle(linked).manifest.name == "en-pt"


def test_a_newer_format_is_told_beside_everything_else(directory: Path) -> None:
    (directory / "weights.bin").unlink()
    edit(directory, lambda fields: fields.update(format_version=FORMAT_VERSION + 1, sentences=3))
    assert set(faults_of(directory)) == {
        f"format version {FORMAT_VERSION + 1} is newer than the newest known, {FORMAT_VERSION}",
        "key `sentences` is unknown",
        "file 'weights.bin' is missing",
    }


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda f: f.pop("name"), "key `name` is missing"),
        (lambda f: f.pop("format_version"), "key `format_version` is missing"),
        (lambda f: f.update(format_version=0), "`format_version` must be at least 1, but is 0"),
        (
            lambda f: f.update(format_version=FORMAT_VERSION - 1),
            f"format version {FORMAT_VERSION - 1} has graphs that run no more: export the checkpoint "
            f"again (`dragoman export` writes version {FORMAT_VERSION})",
        ),
        (
            lambda f: f["limits"].pop("max_source_tokens"),
            "key `limits.max_source_tokens` is missing",
        ),
        (lambda f: f["limits"].update(a=1), "key `limits.a` is unknown"),
        (lambda f: f.update(name=3), "`name` must be text, but is 3"),
        (lambda f: f.update(name=""), "`name` must not be empty"),
        (
            lambda f: f.update(precision="int4"),
            "one of 'float32', 'float16', 'int8', but is \"int4\"",
        ),
        (lambda f: f.update(scores={}), "`scores` must be a list, but is an object"),
        (lambda f: f.update(files=[]), "`files` must be an object, but is a list"),
        (
            lambda f: f["scores"][0].update(value="high"),
            "`scores[0].value` must be a finite number",
        ),
        (lambda f: f["scores"][0].update(value=float("nan")), "`scores[0].value` must be a finite"),
        (
            lambda f: f["architecture"].update(num_heads=0),
            "`num_heads` must be at least 1, but is 0",
        ),
        (lambda f: f["architecture"].update(num_heads=True), "a whole number, but is true"),
        (lambda f: f["architecture"].update(num_heads=8.0), "a whole number, but is 8.0"),
        (lambda f: f["decoding"].update(length_penalty=-1), "must be at least 0, but is -1.0"),
        (lambda f: f["decoding"].update(length_penalty=11), "must be at most 10, but is 11"),
        (lambda f: f["decoding"].update(beam_size=17), "`beam_size` must be at most 16, but is 17"),
        (lambda f: f["limits"].update(max_target_tokens=10**30), "at most 100000, but is 1e+30"),
        (lambda f: f["limits"].update(max_source_tokens=1), "must be at least 2, but is 1"),
        (lambda f: f["limits"].update(target_length_ratio=1e300), "at most 100, but is 1e+300"),
        (lambda f: f.update(source_language="English (US)"), "must be a BCP-47 code"),
        (lambda f: f.update(target_language=""), "must be a BCP-47 code"),
        (lambda f: f["special_tokens"].update(unk_id=32000), "`unk_id` must be in [0, 32000)"),
        (lambda f: f["special_tokens"].update(eos_id=None), "must be a whole number, but is null"),
        (lambda f: f["tokenizer_files"].pop("target"), "the keys `source` and `target`"),
        (lambda f: f["tokenizer_files"].update(target="t.spm"), "`files` does not list 't.spm'"),
        (lambda f: f["files"].pop("decoder.onnx"), "`files` does not list 'decoder.onnx'"),
        (lambda f: f["files"].update({"weights.bin": 3}), "must be an object, but is 3"),
        (lambda f: f["files"]["weights.bin"].update(sha256="ab"), "has a malformed SHA-256"),
    ],
)
def test_a_wrong_manifest_is_told_exactly(
    directory: Path, change: Callable[[dict[str, Any]], object], fault: str
) -> None:
    edit(directory, change)
    assert any(fault in found for found in faults_of(directory))


def test_a_key_that_is_given_twice_is_refused(directory: Path) -> None:
    path = directory / "manifest.json"
    path.write_text(path.read_text().replace("{", '{"name": "other",', 1))
    assert faults_of(directory) == ("key `name` is given twice",)


def test_all_faults_come_in_one_message(directory: Path) -> None:
    (directory / "weights.bin").unlink()
    (directory / "decoder.onnx").write_bytes(b"Decoder")
    edit(directory, lambda fields: (fields.pop("license"), fields.update(precision=8)))
    assert len(faults_of(directory)) == 4


def test_the_module_needs_neither_torch_nor_onnx() -> None:
    script = (
        "import export.bundle, export.signature, sys; print({'torch', 'onnx'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"

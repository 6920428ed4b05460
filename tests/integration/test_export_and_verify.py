"""Checkpoint to bundle to verdict, for real; and every way in which a bundle can be wrong."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from export.bundle import (
    Bundle,
    BundleError,
    DecodingDefaults,
    Manifest,
    Precision,
    describe_file,
    load_bundle,
    write_manifest,
)
from export.calibration import CALIBRATION_FILE, measure_ranges
from export.errors import ExportError
from export.exporter import Companions, export_bundle
from export.parity import verify
from export.runner import GraphRunner
from export.signature import (
    CANDIDATE_IDS,
    EDIT_BIASES,
    EDIT_POSITIONS,
    EDIT_SCALES,
    INPUT_IDS,
    NUM_CANDIDATES,
    padded_vocab_size,
)
from model.checkpoint import load_model
from model.tokenizer import Tokenizer
from tests.tiny_bundles import make_bundle, make_checkpoint, make_facts
from tests.tiny_models import SENTENCES

BundleMaker = Callable[[Precision], Bundle]


def checkpoint_of(bundle: Bundle) -> Path:
    return bundle.directory.parent / "checkpoint"


@pytest.fixture
def broken(tmp_path: Path, random_bundle: BundleMaker) -> Path:
    """A copy to break."""
    directory = tmp_path / "bundle"
    shutil.copytree(random_bundle("float32").directory, directory)
    return directory


def rewrite(directory: Path, change: Callable[[Manifest], Manifest] = lambda m: m) -> None:
    """Make the manifest agree with the files as they are now, after a change of its own."""
    manifest = load_manifest(directory)
    files = {name: describe_file(directory / name) for name in manifest.files}
    write_manifest(directory, change(dataclasses.replace(manifest, files=files)))


def load_manifest(directory: Path) -> Manifest:
    return Manifest.from_json((directory / "manifest.json").read_text())


def edit_graph(directory: Path, name: str, change: Callable[[onnx.GraphProto], object]) -> None:
    model = onnx.load(directory / name, load_external_data=False)
    change(model.graph)
    onnx.save(model, directory / name)
    rewrite(directory)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_exported_bundle_does_what_the_model_does(
    random_bundle: BundleMaker, precision: Precision
) -> None:
    bundle = random_bundle(precision)
    assert verify(bundle.directory) == []
    assert verify(bundle.directory, checkpoint_of(bundle)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"activation": "silu", "attention_bias": False},
        {"d_model": 128, "num_heads": 2, "decoder_layers": 2},
    ],
)
def test_an_int8_bundle_with_measured_ranges_does_what_the_model_does(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", **fields)
    sources = Tokenizer.load_directory(checkpoint).encode_source_batch(list(SENTENCES))
    ranges = measure_ranges(load_model(checkpoint).eval(), sources)
    bundle = export_bundle(
        checkpoint, tmp_path / "bundle", "int8", make_facts(), Companions(ranges=ranges)
    )
    assert CALIBRATION_FILE in bundle.manifest.files
    assert bundle.manifest.int8_caches
    assert verify(bundle.directory, checkpoint) == []


def test_ranges_for_float32_are_refused(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    companions = Companions(ranges=measure_ranges(load_model(checkpoint).eval()))
    with pytest.raises(BundleError, match="float32 has no scales to choose"):
        export_bundle(checkpoint, tmp_path / "bundle", "float32", make_facts(), companions)


def test_a_model_whose_numbers_are_none_is_not_exported_to_int8(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", spread=float("nan"))
    with pytest.raises(ExportError, match="activations are not finite"):
        export_bundle(checkpoint, tmp_path / "bundle", "int8", make_facts())
    assert not (tmp_path / "bundle").exists()


def test_int8_holds_every_matrix_once_in_a_quarter_of_the_bytes(random_bundle: BundleMaker) -> None:
    sizes = {
        precision: random_bundle(precision).manifest.files["weights.bin"].size_bytes
        for precision in ("float32", "int8")
    }
    positions = 256 * 256 * 4  # a table in float32 in both
    assert sizes["int8"] - positions < 0.27 * (sizes["float32"] - positions)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_older_runtimes_take_a_step_without_edits(
    random_bundle: BundleMaker, precision: Precision
) -> None:
    """Before 1.32 no matrix product of integers takes 0 rows, and a sum over axis -1 of 0 rows has another rank."""
    graph = onnx.load(random_bundle(precision).decoder_path, load_external_data=False).graph
    constants = {
        each.name: numpy_helper.to_array(each)
        for each in graph.initializer
        if each.data_location != onnx.TensorProto.EXTERNAL
    }
    for node in graph.node:
        if node.op_type == "MatMul":
            weights = constants.get(node.input[1])
            assert weights is None or weights.dtype != np.int64
        if node.op_type == "ReduceSum":
            assert (constants[node.input[1]] >= 0).all()


def test_a_graph_tells_nothing_of_the_machine_that_exported_it(random_bundle: BundleMaker) -> None:
    for path in (random_bundle("int8").encoder_path, random_bundle("int8").decoder_path):
        content = path.read_bytes()
        assert b".py" not in content
        assert str(Path.cwd()).encode() not in content


def test_other_norms_positions_and_separate_tables_survive_the_export(tmp_path: Path) -> None:
    bundle = make_bundle(
        tmp_path,
        "float32",
        norm_order="pre",
        final_norm=True,
        embedding_norm=True,
        positional_encoding="learned",
        tie_embeddings="none",
        activation="gelu",
        attention_bias=False,
    )
    assert verify(bundle.directory, checkpoint_of(bundle)) == []


def test_the_checkpoint_of_another_model_is_noticed(
    random_bundle: BundleMaker, tmp_path: Path
) -> None:
    bundle = random_bundle("float32")
    shape = {"d_model": 256, "num_heads": 8, "d_ff": 512, "encoder_layers": 2, "decoder_layers": 2}
    other = make_checkpoint(tmp_path / "same-shape", seed=1, spread=8.0, **shape)
    faults = verify(bundle.directory, other)
    assert any("log-probabilities are" in fault for fault in faults)
    assert any("its translation holds a word" in fault for fault in faults)
    small = make_checkpoint(tmp_path / "smaller")
    assert verify(bundle.directory, small) == [
        "the checkpoint has another architecture than the bundle"
    ]
    (missing,) = verify(bundle.directory, tmp_path / "nothing")
    assert "nothing" in missing


def test_a_damaged_bundle_is_refused_with_every_fault(broken: Path) -> None:
    (broken / "weights.bin").unlink()
    (broken / "encoder.onnx").write_bytes(b"?")
    assert len(verify(broken)) == 3  # missing; size and hash


def test_a_graph_of_other_names_types_or_axes_is_told_tensor_by_tensor(broken: Path) -> None:
    def change(graph: onnx.GraphProto) -> None:
        graph.input[0].name = "ids"
        graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        graph.output[1].type.tensor_type.shape.dim[0].dim_param = "Q"

    edit_graph(broken, "encoder.onnx", change)
    faults = verify(broken)
    assert "encoder.onnx: input 'ids' is unknown" in faults
    assert "encoder.onnx: input 'input_ids' is missing" in faults
    assert any("'present.0.encoder.key' must be float32" in fault for fault in faults)
    assert any("('Q'," in fault for fault in faults)
    assert any("do not load" in fault for fault in faults)


def test_weights_that_the_manifest_does_not_vouch_for_are_noticed(broken: Path) -> None:
    (broken / "other.bin").write_bytes((broken / "weights.bin").read_bytes())

    def change(graph: onnx.GraphProto) -> None:
        tensor = next(t for t in graph.initializer if t.external_data)
        next(entry for entry in tensor.external_data if entry.key == "location").value = "other.bin"

    edit_graph(broken, "decoder.onnx", change)
    assert verify(broken) == [
        "decoder.onnx: weights lie in 'other.bin', which the manifest does not list"
    ]


def test_a_file_that_is_no_graph_is_told(broken: Path) -> None:
    (broken / "decoder.onnx").write_bytes(b"not a graph")
    rewrite(broken)
    faults = verify(broken)
    assert any("decoder.onnx is no ONNX file" in fault for fault in faults)


def test_a_vocabulary_of_other_ids_is_told(broken: Path) -> None:
    def change(manifest: Manifest) -> Manifest:
        tokens = dataclasses.replace(manifest.special_tokens, eos_id=7)
        return dataclasses.replace(manifest, special_tokens=tokens)

    rewrite(broken, change)
    assert verify(broken) == ["`eos_id` is 2 in the tokenizer, but 7 in the manifest"]


def test_a_graph_whose_rows_depend_on_the_batch_is_caught(broken: Path) -> None:
    def change(graph: onnx.GraphProto) -> None:
        """Let the largest value of any row change the others, as one scale for the batch would."""
        (index,) = (i for i, node in enumerate(graph.node) if node.op_type == "LogSoftmax")
        logits = graph.node[index].input[0]
        axes = onnx.numpy_helper.from_array(np.array([0, 1]), "all_axes")
        graph.initializer.append(axes)
        graph.node.insert(index, helper.make_node("Div", [logits, "largest"], ["scaled"]))
        graph.node.insert(index, helper.make_node("ReduceMax", [logits, "all_axes"], ["largest"]))
        graph.node[index + 2].input[0] = "scaled"

    edit_graph(broken, "decoder.onnx", change)
    faults = verify(broken)
    assert any("beside other sentences than alone" in fault for fault in faults)


def test_a_graph_whose_rows_depend_on_the_batch_in_one_lane_only_is_caught(broken: Path) -> None:
    def change(graph: onnx.GraphProto) -> None:
        """Divide by the largest value of any row where there is one lane, by one where there are more."""
        (index,) = (i for i, node in enumerate(graph.node) if node.op_type == "LogSoftmax")
        logits = graph.node[index].input[0]
        for name, value in (("all_axes", [0, 1]), ("one", 1)):
            graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
        added = [
            helper.make_node("ReduceMax", [logits, "all_axes"], ["largest"]),
            helper.make_node("Shape", ["lane_heads"], ["num_lanes"], start=2, end=3),
            helper.make_node("Equal", ["num_lanes", "one"], ["is_alone"]),
            helper.make_node("Cast", ["is_alone"], ["power"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Pow", ["largest", "power"], ["divisor"]),
            helper.make_node("Div", [logits, "divisor"], ["scaled"]),
        ]
        for node in reversed(added):
            graph.node.insert(index, node)
        graph.node[index + len(added)].input[0] = "scaled"

    edit_graph(broken, "decoder.onnx", change)
    faults = verify(broken)
    assert any("beside other sentences than alone, at beam 1" in fault for fault in faults)
    assert all("at beam 1" in fault for fault in faults)


def test_export_replaces_a_bundle_as_a_whole_and_takes_more_files(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    card = tmp_path / "card.md"
    card.write_text("# Card")
    output = tmp_path / "bundle"
    export_bundle(checkpoint, output, "float32", make_facts())
    (output / "stale").write_text("old")
    with pytest.raises(ExportError, match="another file of this name"):
        export_bundle(
            checkpoint, output, "float32", make_facts(), Companions(extra_files=[card, card])
        )
    assert (output / "stale").exists()
    bundle = export_bundle(
        checkpoint, output, "float32", make_facts(version="2"), Companions(extra_files=[card])
    )
    assert bundle == load_bundle(output)
    assert bundle.manifest.version == "2"
    assert {path.name for path in output.iterdir()} == {*bundle.manifest.files, "manifest.json"}
    assert bundle.manifest.files["card.md"].size_bytes == 6
    assert bundle.manifest.special_tokens.bos_id == 1


def test_what_is_no_bundle_is_never_replaced(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis").write_text("precious")
    for place in (home, home / "thesis"):
        with pytest.raises(BundleError, match="no bundle to replace|no directory"):
            export_bundle(checkpoint, place, "float32", make_facts())
    assert [path.read_text() for path in home.iterdir()] == ["precious"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "home"]


def test_what_a_manifest_may_not_say_is_told_before_anything_is_written(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    facts = make_facts(
        source_language="English (US)", decoding=DecodingDefaults(beam_size=0, length_penalty=1.0)
    )
    with pytest.raises(BundleError) as caught:
        export_bundle(checkpoint, tmp_path / "bundle", "float32", facts)
    assert len(caught.value.faults) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_that_is_not_whole_cannot_be_exported(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    fields = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**fields, "d_ff": 64}))
    with pytest.raises(ExportError, match="d_ff|feed_forward"):
        export_bundle(checkpoint, tmp_path / "bundle", "int8", make_facts())
    assert not (tmp_path / "bundle").exists()


def test_limits_beyond_the_learned_positions_are_refused(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(
        tmp_path / "checkpoint", positional_encoding="learned", max_positions=100
    )
    with pytest.raises(ExportError, match="256 positions, but the model learned 100"):
        export_bundle(checkpoint, tmp_path / "bundle", "float32", make_facts())


def test_equal_candidates_come_in_the_order_of_their_ids(
    random_bundle: BundleMaker,
) -> None:
    runner = GraphRunner(random_bundle("float32"))
    feeds = runner.decoder_feeds(
        np.array([3, 4]), 0, runner.encode([[5, 2], [6, 7, 2]]), runner.start(2, 4)
    )
    ties = [300, 10, 200, 80, 64, 63]
    width = padded_vocab_size(runner.manifest.architecture.vocab_size)
    feeds[EDIT_POSITIONS] = width + np.array(ties)
    feeds[EDIT_SCALES] = np.zeros(len(ties), np.float32)
    feeds[EDIT_BIASES] = np.ones(len(ties), np.float32)
    feeds[NUM_CANDIDATES] = np.array([5])
    (ids,) = runner.decoder.run([CANDIDATE_IDS], feeds)
    assert ids[1].tolist() == sorted(ties)[:5]
    assert feeds[INPUT_IDS].tolist() == [3, 4]

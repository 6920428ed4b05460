"""The last stage of a recipe, with the real command."""

import json

import pytest

from export.bundle import load_bundle
from export.calibration import measure_ranges, save_ranges
from export.shortlist import save_shortlist
from model.checkpoint import save_model
from model.errors import TrainingError
from model.recipes.bundle import BundleFacts, write_bundle
from tests.tiny_bundles import make_shortlist
from tests.tiny_models import make_model, make_tokenizer

FACTS = BundleFacts(
    name="tiny",
    version="3",
    source_language="en",
    target_language="pt",
    license="MIT",
    max_source_tokens=17,
)


def test_bundle_takes_what_lies_beside_the_checkpoint(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    save_model(checkpoint, make_model(), make_tokenizer())
    save_ranges(checkpoint / "calibration.safetensors", measure_ranges(make_model(), [[5, 6, 2]]))
    (checkpoint / "README.md").write_text("card")
    (checkpoint / "LICENSE").write_text("licence")
    score = {"metric": "BLEU", "value": 1.0, "signature": "nrefs:1"}
    scores = {"test_set": "devtest", "num_sentences": 2, "scores": [score]}
    (checkpoint / "scores.devtest.json").write_text(json.dumps(scores))
    save_shortlist(checkpoint / "shortlist.npz", make_shortlist())
    write_bundle(checkpoint, tmp_path / "bundle", FACTS)
    manifest = load_bundle(tmp_path / "bundle").manifest
    assert (manifest.name, manifest.version, manifest.license) == ("tiny", "3", "MIT")
    assert manifest.limits.max_source_tokens == 17
    assert [score.test_set for score in manifest.scores] == ["devtest"]
    assert {"README.md", "LICENSE"} <= set(manifest.files)
    assert manifest.shortlist == "shortlist.npz"
    ranges = (tmp_path / "bundle/calibration.safetensors").read_bytes()
    assert ranges == (checkpoint / "calibration.safetensors").read_bytes()


def test_a_bundle_for_gpus_takes_the_card_but_nothing_of_int8(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    save_model(checkpoint, make_model(), make_tokenizer())
    (checkpoint / "README.md").write_text("card")
    score = {"metric": "BLEU", "value": 1.0, "signature": "nrefs:1"}
    scores = {"test_set": "devtest", "num_sentences": 2, "scores": [score]}
    (checkpoint / "scores.devtest.json").write_text(json.dumps(scores))
    save_shortlist(checkpoint / "shortlist.npz", make_shortlist())
    write_bundle(checkpoint, tmp_path / "bundle", FACTS, "float16")
    manifest = load_bundle(tmp_path / "bundle").manifest
    assert (manifest.precision, manifest.shortlist, manifest.scores) == ("float16", None, ())
    assert "README.md" in manifest.files


def test_failed_export_says_that_the_checkpoint_stays(tmp_path, capfd):
    with pytest.raises(TrainingError, match="the checkpoint is complete"):
        write_bundle(tmp_path / "nothing", tmp_path / "bundle", FACTS)
    assert "nothing" in capfd.readouterr().err

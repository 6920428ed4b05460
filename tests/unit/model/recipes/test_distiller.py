import json

import pytest
import torch

from model.checkpoint import load_model
from model.errors import CheckpointError, DataError, TrainingError
from model.recipes.stages import StageConfig
from tests.tiny_distiller import STAGES, create_distiller


def read_log(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_stages_run_in_order_and_bring_the_student_nearer(tmp_path):
    distiller = create_distiller(tmp_path)
    before = distiller.evaluate()["held_out_divergence"]
    distiller.train()
    assert distiller.evaluate()["held_out_divergence"] < before
    assert [line["stage"] for line in read_log(tmp_path) if line.get("event") == "start"] == [
        "cells",
        "all",
    ]


def test_each_stage_leaves_its_weights(tmp_path):
    distiller = create_distiller(tmp_path)
    distiller.train()
    last = load_model(tmp_path / "stage-all").state_dict()
    for name, tensor in distiller.student.state_dict().items():
        assert torch.equal(tensor, last[name])
    assert 1 <= len(list((tmp_path / "kept").glob("step-*"))) <= 6


def test_interrupted_run_goes_on_where_it_stood(tmp_path):
    first = create_distiller(tmp_path, STAGES[:1])
    first.train()
    steps = json.loads((tmp_path / "last" / "trainer.json").read_text())["step"]
    second = create_distiller(tmp_path)
    assert second.progress.step == steps > 0
    for name, tensor in first.student.state_dict().items():
        assert torch.equal(tensor, second.student.state_dict()[name])
    second.train()
    assert "all" in {line["stage"] for line in read_log(tmp_path)}


def test_interrupted_stage_takes_up_the_optimizer_too(tmp_path):
    create_distiller(tmp_path, STAGES[:1]).train()
    again = create_distiller(tmp_path, (StageConfig(**{**stage_fields(), "minutes": 0.2}),))
    steps = again.progress.step
    again.train()
    assert again.progress.stage == 1
    resumed = [line for line in read_log(tmp_path) if line["step"] == steps]
    assert resumed[-1]["event"] == "start"


def test_embeddings_stay_the_teachers(tmp_path):
    distiller = create_distiller(tmp_path)
    distiller.train()
    theirs = distiller.teacher.body.source_embedding.weight
    assert torch.equal(distiller.student.source_embedding.weight, theirs)


def test_nan_stops_the_run(tmp_path):
    distiller = create_distiller(tmp_path, STAGES[1:])
    with torch.no_grad():
        distiller.student.encoder.layers[0].feed_forward.linear_in.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="norm of the gradient is nan"):
        distiller.train()


def stage_fields():
    stage = STAGES[0]
    return {
        "name": stage.name,
        "loss": stage.loss,
        "learning_rates": stage.learning_rates,
    }


def test_run_killed_while_its_checkpoint_was_replaced_goes_on(tmp_path):
    create_distiller(tmp_path, STAGES[:1]).train()
    (tmp_path / "last").rename(tmp_path / ".last.old")  # as SIGKILL leaves it between two renames
    (tmp_path / ".last.partial").mkdir()
    again = create_distiller(tmp_path, STAGES[:1])
    assert again.progress.step > 0
    again.train()
    assert not (tmp_path / ".last.old").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"other": 1}', ""])
def test_broken_progress_is_named(tmp_path, content):
    create_distiller(tmp_path, STAGES[:1]).train()
    (tmp_path / "last" / "trainer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"trainer\.json"):
        create_distiller(tmp_path)


def test_truncated_weights_are_named(tmp_path):
    create_distiller(tmp_path, STAGES[:1]).train()
    weights = tmp_path / "last" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"last/model\.safetensors"):
        create_distiller(tmp_path)


def test_too_few_pairs_to_hold_some_out_are_refused(tmp_path):
    with pytest.raises(DataError, match="has 10 pairs that can be used; 10 are held out"):
        create_distiller(tmp_path, num_pairs=10)

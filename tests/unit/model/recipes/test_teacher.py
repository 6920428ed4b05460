import numpy as np
import pytest
import torch

from model.errors import CheckpointError
from model.masks import causal_mask
from model.recipes import teacher as module
from model.recipes.teacher import (
    RecurrentCell,
    Teacher,
    create_student,
    find_one,
    teacher_config,
)


def make_tensors(d_model=16, d_ff=24, vocab_size=11):
    """Tensors under Marian's names: 2 encoder layers, 1 decoder layer."""
    generator = np.random.default_rng(0)

    def new(*shape):
        return generator.normal(size=shape, scale=0.3).astype(np.float32)

    tensors = {"Wemb": new(vocab_size, d_model), "decoder_ff_logit_out_b": new(1, vocab_size)}
    for layer in ("encoder_l1", "encoder_l2", "decoder_l1"):
        attention = "self" if layer.startswith("encoder") else "context"
        for letter in "qkvo":
            tensors[f"{layer}_{attention}_W{letter}"] = new(d_model, d_model)
            tensors[f"{layer}_{attention}_b{letter}"] = new(1, d_model)
        tensors[f"{layer}_ffn_W1"], tensors[f"{layer}_ffn_b1"] = new(d_model, d_ff), new(1, d_ff)
        tensors[f"{layer}_ffn_W2"], tensors[f"{layer}_ffn_b2"] = new(d_ff, d_model), new(1, d_model)
        for norm in (f"{attention}_Wo_ln", "ffn_ffn_ln"):
            tensors[f"{layer}_{norm}_scale"] = new(1, d_model)
            tensors[f"{layer}_{norm}_bias"] = new(1, d_model)
    for name, shape in (
        ("W", (d_model, d_model)),
        ("Wf", (d_model, d_model)),
        ("bf", (1, d_model)),
    ):
        tensors[f"decoder_l1_rnn_{name}"] = new(*shape)
    tensors["decoder_l1_rnn_ffn_ln_scale"] = new(1, d_model)
    tensors["decoder_l1_rnn_ffn_ln_bias"] = new(1, d_model)
    return tensors


@pytest.fixture
def teacher(monkeypatch, tmp_path):
    (tmp_path / "model.x.bin").touch()
    monkeypatch.setattr(module, "load_marian_tensors", lambda path: make_tensors())
    return module.load_teacher(tmp_path)


def test_cell_follows_its_recurrence():
    torch.manual_seed(0)
    cell, x = RecurrentCell(3), torch.randn(1, 4, 3)
    state, expected = torch.zeros(3), []
    for position in x[0]:
        forget = torch.sigmoid(cell.forget_proj(position))
        state = forget * state + (1 - forget) * cell.candidate_proj(position)
        expected.append(torch.relu(state))
    torch.testing.assert_close(cell(x)[0], torch.stack(expected))


def test_shape_is_read_off_the_tensors():
    config = teacher_config(make_tensors())
    assert (config.d_model, config.d_ff, config.target_vocab_size) == (16, 24, 11)
    assert (config.encoder_layers, config.decoder_layers) == (2, 1)
    assert config.start_from_zero_embedding and config.output_bias


def test_marian_matrices_multiply_from_the_right(teacher):
    tensors, x = make_tensors(), np.ones((1, 16), dtype=np.float32)
    expected = x @ tensors["encoder_l2_ffn_W1"] + tensors["encoder_l2_ffn_b1"]
    got = teacher.body.encoder.layers[1].feed_forward.linear_in(torch.from_numpy(x))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)


def test_missing_tensor_is_named(monkeypatch, tmp_path):
    tensors = make_tensors()
    monkeypatch.setattr(module, "_cell", lambda *arguments: {})
    monkeypatch.setattr(module, "load_marian_tensors", lambda path: tensors)
    (tmp_path / "model.x.bin").touch()
    with pytest.raises(
        CheckpointError, match=r"lacks weights for: cells\.0\.candidate_proj\.weight"
    ):
        module.load_teacher(tmp_path)


def test_student_with_the_teachers_first_sublayer_is_the_teacher(teacher):
    student = create_student(teacher).eval()
    ids, mask = torch.tensor([[3, 4, 0]]), torch.ones(1, 3, dtype=torch.bool)
    inputs = student.shift_right(torch.tensor([[5, 6, 7, 0]]))
    memory = student.encode(ids, mask)
    torch.testing.assert_close(memory, teacher.encode(ids, mask))
    wanted, seen = teacher.decode(inputs, memory, mask)
    ((_, mixed),) = seen
    layer = student.decoder.layers[0]
    cross = layer.cross_attention.project_keys_values(memory, memory)
    hidden = layer.after_self_attention(mixed, cross, mask[:, None, None, :])
    torch.testing.assert_close(hidden, wanted)
    torch.testing.assert_close(student.project(hidden), teacher.body.project(wanted))


def test_student_starts_its_values_as_the_cells_candidates(teacher):
    attention = create_student(teacher).decoder.layers[0].self_attention
    assert torch.equal(attention.value_proj.weight, teacher.cells[0].candidate_proj.weight)
    x = torch.randn(1, 1, 16)
    expected = 0.5 * teacher.cells[0].candidate_proj(x)
    torch.testing.assert_close(attention(x, x, x, causal_mask(1)), expected)


def test_teacher_is_frozen_and_shares_nothing_with_the_student(teacher):
    student = create_student(teacher)
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    theirs = {parameter.data_ptr() for parameter in teacher.parameters()}
    assert theirs.isdisjoint(parameter.data_ptr() for parameter in student.parameters())


def test_folder_without_a_model_is_refused_with_a_hint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"exactly one model\.\*\.bin.*README"):
        find_one(tmp_path, "model.*.bin")


def test_teacher_looks_at_no_later_token(teacher):
    assert isinstance(teacher, Teacher)
    mask = torch.ones(1, 2, dtype=torch.bool)
    memory = teacher.encode(torch.tensor([[3, 0]]), mask)
    first, _ = teacher.decode(torch.tensor([[0, 5, 6]]), memory, mask)
    second, _ = teacher.decode(torch.tensor([[0, 5, 9]]), memory, mask)
    torch.testing.assert_close(first[:, :2], second[:, :2])


@pytest.mark.parametrize(
    "name", ["Wemb", "encoder_l1_ffn_W1", "decoder_l1_rnn_W", "encoder_l2_self_bq"]
)
def test_model_of_another_kind_is_refused_by_name(monkeypatch, tmp_path, name):
    tensors = {key: value for key, value in make_tensors().items() if key != name}
    monkeypatch.setattr(module, "load_marian_tensors", lambda path: tensors)
    (tmp_path / "model.x.bin").touch()
    with pytest.raises(CheckpointError, match=r"model\.x\.bin"):
        module.load_teacher(tmp_path)


def test_weights_of_another_shape_are_named(monkeypatch, tmp_path):
    tensors = {**make_tensors(), "decoder_l1_rnn_W": np.zeros((3, 3), dtype=np.float32)}
    monkeypatch.setattr(module, "load_marian_tensors", lambda path: tensors)
    (tmp_path / "model.x.bin").touch()
    with pytest.raises(CheckpointError, match=r"`cells\.0\.candidate_proj\.weight` has shape"):
        module.load_teacher(tmp_path)

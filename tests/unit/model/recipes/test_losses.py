import copy

import pytest
import torch
import torch.nn.functional as F

from model.recipes.losses import _Divergence, cell_imitation_loss, choose_words, distribution_loss
from model.recipes.pairs import PairBatch
from model.recipes.teacher import Teacher, create_student
from tests.tiny_models import make_config


@pytest.fixture
def teacher():
    torch.manual_seed(0)
    config = make_config(output_bias=True, dropout=0.0, decoder_layers=2)
    return Teacher(config).eval().requires_grad_(False)


def make_batch(padding=0):
    source = torch.tensor([[3, 4, 5, 2], [6, 7, 2, 0]])
    target = torch.tensor([[8, 9, 2], [5, 2, 0]])
    return PairBatch(
        F.pad(source, (0, padding), value=11),
        F.pad(source != 0, (0, padding)),
        F.pad(target, (0, padding), value=11),
        F.pad(target != 0, (0, padding)),
    )


@torch.no_grad()
def naive_divergence(teacher, student, batch, words):
    inputs = student.shift_right(batch.target_ids)
    memory = teacher.encode(batch.source_ids, batch.source_mask)
    wanted, _ = teacher.decode(inputs, memory, batch.source_mask)
    given = student(batch.source_ids, batch.source_mask, inputs)[..., words].log_softmax(-1)
    wanted = teacher.body.project(wanted)[..., words].log_softmax(-1)
    terms = F.kl_div(given, wanted, reduction="none", log_target=True).sum(-1)
    return terms[batch.target_mask].mean()


@pytest.mark.parametrize("words", [range(12), (2, 5, 8, 9, 11)])
@pytest.mark.parametrize("share_encoder", [True, False])
def test_divergence_equals_the_naive_one(teacher, words, share_encoder):
    student, words = create_student(teacher).eval(), torch.tensor(list(words))
    counted = (words, torch.zeros(len(words)))
    loss = distribution_loss(teacher, student, make_batch(), counted, share_encoder)
    torch.testing.assert_close(loss, naive_divergence(teacher, student, make_batch(), words))


def test_gradient_of_the_divergence_is_that_of_the_written_out_one():
    torch.manual_seed(0)
    hidden, wanted = torch.randn(300, 4, requires_grad=True), torch.randn(300, 4)
    weight, bias = torch.randn(9, 4), torch.randn(9)
    (ours,) = torch.autograd.grad(_Divergence.apply(hidden, wanted, weight, bias), hidden)
    given, real = (F.linear(x, weight, bias).log_softmax(-1) for x in (hidden, wanted))
    (written,) = torch.autograd.grad(
        F.kl_div(given, real, reduction="sum", log_target=True), hidden
    )
    torch.testing.assert_close(ours, written, atol=1e-5, rtol=1e-4)


def test_padding_changes_no_loss(teacher):
    student, words = create_student(teacher).eval(), (torch.arange(12), torch.zeros(12))
    for padding in (1, 4):
        torch.testing.assert_close(
            distribution_loss(teacher, student, make_batch(padding), words, True),
            distribution_loss(teacher, student, make_batch(), words, True),
        )
        torch.testing.assert_close(
            cell_imitation_loss(teacher, student, make_batch(padding)),
            cell_imitation_loss(teacher, student, make_batch()),
        )


def test_imitation_has_one_number_a_layer_and_falls(teacher):
    student = create_student(teacher)
    before = copy.deepcopy(student.state_dict())
    trained = [
        p for n, p in student.named_parameters() if ".self_attention." in n and "decoder" in n
    ]
    optimizer = torch.optim.Adam(trained, lr=1e-2)
    losses = []
    for _ in range(30):
        loss = cell_imitation_loss(teacher, student, make_batch())
        losses.append(loss.sum().item())
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    assert loss.shape == (2,)
    assert losses[-1] < 0.5 * losses[0]
    name = "decoder.layers.0.feed_forward.linear_in.weight"
    assert torch.equal(student.state_dict()[name], before[name])


def test_words_are_those_of_the_batch_the_frequent_and_some_random_ones():
    generator = torch.Generator().manual_seed(0)
    words, log_counts = choose_words(make_batch(), torch.tensor([40, 41]), 100, 10, generator)
    known = {0, 2, 3, 4, 5, 6, 7, 8, 9, 40, 41}
    assert known <= set(words.tolist())
    assert len(set(words.tolist())) == len(words) == len(known) + 10
    assert log_counts.exp().sum().item() == pytest.approx(100, rel=1e-4)
    assert all(log_counts[i] == 0 for i, word in enumerate(words.tolist()) if word in known)


def test_a_vocabulary_that_is_chosen_whole_needs_no_random_words():
    generator = torch.Generator().manual_seed(0)
    words, log_counts = choose_words(make_batch(), torch.arange(12), 12, 10, generator)
    assert words.tolist() == list(range(12))
    assert log_counts.abs().sum() == 0


def test_a_word_that_stands_for_others_weighs_as_many(teacher):
    student = create_student(teacher).eval()
    for model in (teacher.body, student):
        with torch.no_grad():  # words 9, 10 and 11 become equal
            model.output_projection.weight[10:12] = model.output_projection.weight[9]
            model.output_projection.bias[10:12] = model.output_projection.bias[9]
    whole = (torch.arange(12), torch.zeros(12))
    counted = (torch.arange(10), torch.tensor([0.0] * 9 + [3.0]).clamp(min=1.0).log())
    torch.testing.assert_close(
        distribution_loss(teacher, student, make_batch(), counted, True),
        distribution_loss(teacher, student, make_batch(), whole, True),
    )

import pytest

from model.recipes.stages import StageConfig
from tests.tiny_models import make_model

STAGE = StageConfig(
    name="x",
    loss="distribution",
    minutes=1.0,
    learning_rates=(("self_attention", 1e-3), ("encoder", 1e-4)),
    warmup=0.1,
    final_rate=0.2,
)


def test_learning_rate_rises_then_falls_in_a_line():
    factors = [STAGE.learning_rate_factor(fraction) for fraction in (0.05, 0.1, 0.55, 1.0, 1.2)]
    assert factors == pytest.approx([0.5, 1.0, 0.6, 0.2, 0.2])


def test_learning_rate_is_never_zero_at_the_start():
    assert STAGE.learning_rate_factor(0.0) > 0.0


def test_parts_that_are_not_named_are_frozen():
    model = make_model()
    attention, encoder = STAGE.parameter_groups(model)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {
        name
        for name, _ in model.named_parameters()
        if name.startswith("encoder.") or "decoder.layers.0.self_attention." in name
    }
    assert (attention["peak"], encoder["peak"]) == (1e-3, 1e-4)
    assert len(attention["params"]) + len(encoder["params"]) == len(trained)


def test_stage_says_what_it_trains():
    assert STAGE.trains("encoder")
    assert not STAGE.trains("decoder")

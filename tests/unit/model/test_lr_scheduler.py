from __future__ import annotations

import pytest
import torch

from model.lr_scheduler import InverseSquareRootSchedule, paper_peak, set_learning_rate


@pytest.mark.parametrize("step", [1, 100, 3999, 4000, 4001, 100_000])
def test_rate_is_equation_3_of_the_paper(step: int) -> None:
    schedule = InverseSquareRootSchedule(peak=paper_peak(512, 4000), warmup_steps=4000)
    assert schedule(step) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


def test_peak_stands_at_the_end_of_the_warm_up() -> None:
    schedule = InverseSquareRootSchedule(peak=0.5, warmup_steps=10)
    rates = [schedule(step) for step in range(1, 100)]
    assert max(rates) == rates[9] == 0.5
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_cooldown_multiplies_the_rate_down_to_nothing() -> None:
    plain = InverseSquareRootSchedule(peak=1.0, warmup_steps=10)
    cooled = InverseSquareRootSchedule(
        peak=1.0, warmup_steps=10, cooldown_start=60, cooldown_end=99
    )
    assert cooled(60) == plain(60)
    assert cooled(80) == pytest.approx(plain(80) * 0.5)
    assert 0 < cooled(99) == pytest.approx(plain(99) / 40)
    assert cooled(100) == cooled(500) == 0.0


def test_groups_keep_their_own_scale() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD(
        [{"params": weights[:1]}, {"params": weights[1:], "lr_scale": 0.1}], lr=1.0
    )
    set_learning_rate(optimizer, 0.02)
    assert [group["lr"] for group in optimizer.param_groups] == [0.02, pytest.approx(0.002)]

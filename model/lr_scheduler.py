"""Learning rate as a pure function of the step, so that a resumed run needs no state to go on (section 5.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.optim import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseSquareRootSchedule:
    """Linear warm-up to a peak, then falling with the square root of the step (Vaswani et al. 2017, equation 3).

    rate(step) = peak * min(step / warmup, sqrt(warmup / step)). The paper's
    d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) is the same curve with
    peak = (d_model * warmup)^-0.5; see `paper_peak`.
    """

    peak: float
    """The highest rate, reached at step `warmup_steps`."""

    warmup_steps: int
    """Steps of linear growth."""

    cooldown_start: int | None = None
    """Step after which the rate also falls linearly, to zero behind `cooldown_end`; None: it never does."""

    cooldown_end: int = 0
    """Last step of the cool-down, when there is one."""

    def __call__(self, step: int) -> float:
        """Give the rate of an update.

        Args:
            step: Number of the update, counted from 1.
        """
        decay = math.sqrt(self.warmup_steps / step)
        rate = self.peak * min(step / self.warmup_steps, decay)
        if self.cooldown_start is not None and step > self.cooldown_start:
            left = max(self.cooldown_end + 1 - step, 0)
            rate *= left / (self.cooldown_end + 1 - self.cooldown_start)
        return rate


def paper_peak(d_model: int, warmup_steps: int) -> float:
    """Give the peak of the paper's own schedule (section 5.3): (d_model * warmup_steps)^-0.5."""
    return float((d_model * warmup_steps) ** -0.5)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the rate of every parameter group, multiplied by the group's own `lr_scale` (1 when it has none)."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("lr_scale", 1.0)

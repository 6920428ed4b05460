"""The stages of a recipe: what each trains, by which loss, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from model.transformer import Transformer

Part = Literal["self_attention", "decoder", "encoder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """One stage; its learning rate rises over `warmup` of its time and then falls in a line."""

    name: str
    """Names its folder and its lines in the log."""

    loss: Literal["cells", "distribution"]
    """Imitate the teacher's recurrent cells, or its distribution of the next word."""

    minutes: float
    """Wall-clock time of the stage; a resumed run counts the time before the interruption too."""

    learning_rates: tuple[tuple[Part, float], ...]
    """Peak learning rate of each part that is trained; the others are frozen."""

    final_rate: float = 0.0
    """Share of the peak at which the learning rate ends."""

    warmup: float = 0.02
    """Share of the stage in which the learning rate rises from 0."""

    max_batch_tokens: int = 4096
    """Most padded tokens of a batch on either side."""

    def learning_rate_factor(self, fraction: float) -> float:
        """Give the share of the peak at a time, counted in `fraction` of the stage."""
        if fraction < self.warmup:
            return max(fraction / self.warmup, 0.01)
        left = (1.0 - min(fraction, 1.0)) / (1.0 - self.warmup)
        return self.final_rate + (1.0 - self.final_rate) * left

    def parameter_groups(self, student: Transformer) -> list[dict[str, Any]]:
        """Freeze `student` but for the parts of this stage, and give those as groups of an optimizer."""
        student.requires_grad_(False)
        groups = []
        for part, rate in self.learning_rates:
            parameters = [p for name, p in student.named_parameters() if _part_of(name) == part]
            for parameter in parameters:
                parameter.requires_grad_(True)
            groups.append({"params": parameters, "lr": rate, "peak": rate})
        return groups

    def trains(self, part: Part) -> bool:
        """Whether this stage changes `part`."""
        return any(part == trained for trained, _ in self.learning_rates)


def _part_of(name: str) -> Part | None:
    if name.startswith("encoder."):
        return "encoder"
    if name.startswith("decoder."):
        return "self_attention" if ".self_attention." in name else "decoder"
    return None  # embeddings and output projection are the teacher's and stay so

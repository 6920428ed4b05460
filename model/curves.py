"""A picture of a training run, from its log: losses, learning rate and, where they were measured, scores."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_SECONDARY = "tab:orange"

Event = dict[str, Any]


def draw_curves(log: Path, picture: Path) -> None:
    """Draw the run whose events `log` holds as a PNG; it takes the place of an older one when it is complete."""
    events = read_events(log)
    steps = [event for event in events if event["event"] == "step"]
    validations = [event for event in events if event["event"] == "validation"]
    scored = [event for event in validations if "scores" in event]
    panels = [_draw_loss, _draw_rate, _draw_speed, *([_draw_scores] if scored else [])]
    figure = Figure(figsize=(8, 2.6 * len(panels) + 0.6), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for draw, panel in zip(panels, axes, strict=True):
        draw(panel, steps, validations)
        panel.grid(alpha=0.3)
    axes[-1].set_xlabel("update")
    partial = picture.with_name(f".{picture.name}.partial")
    figure.savefig(partial, format="png", dpi=110)
    partial.replace(picture)


def read_events(log: Path) -> list[Event]:
    """Read what a run did, without what a resumed run did once more from its last checkpoint."""
    events: list[Event] = []
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # the run was killed while it wrote, or writes at this moment
                continue
            if event["event"] == "resume":
                events = [e for e in events if e.get("step", 0) <= event["step"]]
            events.append(event)
    return events


def _draw_loss(axes: Axes, steps: list[Event], validations: list[Event]) -> None:
    axes.plot(*_curve(steps, "loss"), linewidth=1, label="training, label-smoothed")
    axes.plot(*_curve(steps, "nll"), linewidth=1, label="training")
    if validations:
        best = min(validations, key=lambda event: float(event["nll"]))
        label = f"held out, best {best['nll']:.3f} at {best['step']}"
        axes.plot(*_curve(validations, "nll"), marker=".", color="tab:red", label=label)
    axes.set_ylabel("loss a token")
    axes.legend()


def _draw_rate(axes: Axes, steps: list[Event], validations: list[Event]) -> None:
    axes.plot(*_curve(steps, "learning_rate"), linewidth=1)
    axes.set_ylabel("learning rate")
    axes.set_ylim(bottom=0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))


def _draw_speed(axes: Axes, steps: list[Event], validations: list[Event]) -> None:
    axes.plot(*_curve(steps, "tokens_per_second"), linewidth=1)
    axes.set_ylabel("target tokens/s")
    axes.set_ylim(bottom=0)
    norms = axes.twinx()
    norms.plot(*_curve(steps, "gradient_norm"), linewidth=1, alpha=0.6, color=_SECONDARY)
    norms.set_ylabel("gradient norm", color=_SECONDARY)
    norms.set_yscale("log")


def _draw_scores(axes: Axes, steps: list[Event], validations: list[Event]) -> None:
    scored = [event for event in validations if "scores" in event]
    for metric in sorted({metric for event in scored for metric in event["scores"]}):
        points = [event for event in scored if metric in event["scores"]]
        axes.plot(
            [event["step"] for event in points],
            [event["scores"][metric] for event in points],
            marker=".",
            label=f"{metric}, held out, greedy",
        )
    axes.set_ylabel("score")
    axes.legend()


def _curve(events: Iterable[Event], name: str) -> tuple[list[int], list[float]]:
    points = [(event["step"], event[name]) for event in events if name in event]
    return [step for step, _ in points], [value for _, value in points]

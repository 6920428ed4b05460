"""What a run found, as a picture: each ratio as a share of its floor or ceiling."""

from __future__ import annotations

from pathlib import Path

from benchmarks.run import Report
from benchmarks.targets import TARGETS

__all__ = ["save_picture"]


def save_picture(report: Report, path: Path) -> None:
    """Write a PNG with one bar a ratio; a bar that reaches 1 meets its target."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ratios = report.result.ratios
    keys = [key for key in TARGETS if key in ratios]
    scores = [_score(key, ratios[key]) for key in keys]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(keys) + 1.5))
    colours = ["tab:green" if score >= 1 else "tab:red" for score in scores]
    axes.barh(keys, scores, color=colours)
    for place, (key, score) in enumerate(zip(keys, scores, strict=True)):
        axes.text(score, place, f" {ratios[key]:.3g} ({TARGETS[key]})", va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlim(0, max([1.0, *scores]) * 1.45)
    axes.invert_yaxis()
    axes.set_xlabel("1 = what is wanted; longer is better")
    axes.set_title(f"Dragoman, {report.machine['processor']}, {report.machine['cores']} cores")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _score(key: str, value: float) -> float:
    target = TARGETS[key]
    if target.at_least is not None:
        return value / target.at_least
    return (target.at_most or 0.0) / value

"""Draw every panel of the dashboards with matplotlib, from the data of a real Prometheus.

    python -m deploy.grafana.pictures                     starts a server, a Prometheus and traffic of its own
    python -m deploy.grafana.pictures --prometheus URL    asks one that runs

The pictures are not screenshots of Grafana, and say so: same queries, same titles, another program that draws.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter

from benchmarks.server import start_server
from deploy.grafana.__main__ import DIRECTORY
from deploy.grafana.queries import with_variables
from deploy.grafana.traffic import drive
from deploy.prometheus.local import Prometheus, Series, start_prometheus

__all__ = ["draw_dashboard", "main"]

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images"
_LABEL = "Drawn by deploy/grafana/pictures.py from the data of a real Prometheus; not a screenshot of Grafana."
_COLUMNS = 24
_DRAWING_SECONDS = 10.0
"""The traffic goes on while the pictures are drawn."""
_INCHES_A_COLUMN = 0.78
_INCHES_A_LINE = 0.36
_STEPS = 120
_LEGEND_ENTRIES = 8
_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def main() -> int:
    """Draw all dashboards."""
    parser = argparse.ArgumentParser(prog="python -m deploy.grafana.pictures", description=__doc__)
    parser.add_argument("--prometheus", metavar="URL", help="ask this one, in place of our own")
    parser.add_argument("--seconds", type=float, default=180.0, help="default: %(default)g")
    parser.add_argument("--output", type=Path, default=PICTURES, metavar="DIR")
    arguments = parser.parse_args()
    if arguments.prometheus:
        return _draw_all(Prometheus(arguments.prometheus.rstrip("/")), arguments)
    with start_server() as server:
        target = urllib.parse.urlsplit(server.metrics_url).netloc
        with start_prometheus([target]) as prometheus:
            load = threading.Thread(
                target=drive, args=(server.address, arguments.seconds + _DRAWING_SECONDS)
            )
            load.start()
            time.sleep(arguments.seconds)
            try:
                return _draw_all(prometheus, arguments)
            finally:
                load.join()


def _draw_all(prometheus: Prometheus, arguments: argparse.Namespace) -> int:
    arguments.output.mkdir(parents=True, exist_ok=True)
    empty: list[str] = []
    for path in sorted(DIRECTORY.glob("*.json")):
        dashboard = json.loads(path.read_text("utf-8"))
        picture = arguments.output / f"{path.stem}.png"
        empty += draw_dashboard(prometheus, dashboard, picture, seconds=arguments.seconds)
        print(picture)
    for title in empty:
        print(f"no data: {title}", file=sys.stderr)
    return 1 if empty else 0


def draw_dashboard(
    prometheus: Prometheus, dashboard: dict[str, Any], path: Path, *, seconds: float
) -> list[str]:
    """Draw the panels in their places, over the last `seconds`. Returns the titles of those without data."""
    mpl.use("agg")
    end = time.time()
    lines = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in dashboard["panels"])
    size = (_COLUMNS * _INCHES_A_COLUMN, lines * _INCHES_A_LINE + 1.0)
    figure = plt.figure(figsize=size, facecolor="white")
    figure.text(0.01, 1 - 0.3 / size[1], dashboard["title"], fontsize=15, weight="bold", va="top")
    figure.text(0.99, 1 - 0.35 / size[1], _LABEL, fontsize=9, ha="right", va="top", color="0.35")
    empty = []
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        top = 1 - (place["y"] * _INCHES_A_LINE + 0.85) / size[1]
        if panel["type"] == "row":
            figure.text(0.01, top, panel["title"], fontsize=11, weight="bold", color="0.3")
            continue
        height = place["h"] * _INCHES_A_LINE / size[1]
        axes = figure.add_axes(
            (
                place["x"] / _COLUMNS + 0.038,
                top - height + 0.4 / size[1],
                place["w"] / _COLUMNS - 0.05,
                height - 0.62 / size[1],
            )
        )
        if not _draw_panel(axes, panel, prometheus, (end - seconds, end)):
            empty.append(panel["title"])
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)
    return empty


def _draw_panel(
    axes: Any, panel: dict[str, Any], prometheus: Prometheus, span: tuple[float, float]
) -> bool:
    """Draw one panel. Returns whether there was data."""
    axes.set_title(panel["title"], fontsize=9.5, loc="left")
    axes.tick_params(labelsize=7)
    draw = {"stat": _draw_number, "table": _draw_table, "heatmap": _draw_heatmap}
    step = max(1.0, (span[1] - span[0]) / _STEPS)
    found: list[tuple[str, Series]] = []
    for target in panel["targets"]:
        expression = with_variables(target["expr"], rate_interval=f"{max(10, int(4 * step))}s")
        answer = (
            prometheus.query(expression)
            if target.get("instant")
            else prometheus.query_range(expression, *span, step)
        )
        found += [(_legend(target["legendFormat"], series), series) for series in answer]
    found = [(legend, series) for legend, series in found if series.has_number]
    if found:
        draw.get(panel["type"], _draw_lines)(axes, panel, found)
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="red")
    return bool(found)


def _draw_lines(axes: Any, panel: dict[str, Any], found: list[tuple[str, Series]]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    shown = sorted(found, key=lambda each: -np.nansum(each[1].values))[:_LEGEND_ENTRIES]
    ends_at = max(series.times[-1] for _, series in shown)
    if defaults["custom"].get("stacking"):
        times = sorted({moment for _, series in shown for moment in series.times})
        layers = [_at(series, times) for _, series in shown]
        axes.stackplot(
            np.array(times) - ends_at, layers, labels=[name for name, _ in shown], alpha=0.6
        )
    else:
        for name, series in shown:
            axes.plot(np.array(series.times) - ends_at, series.values, label=name, linewidth=1.3)
    highest = axes.dataLim.y1 if np.isfinite(axes.dataLim.y1) else 0.0
    axes.set_ylim(0, defaults.get("max", 1.25 * highest or 1.0))
    for step in defaults.get("thresholds", {}).get("steps", ())[1:]:
        if step["value"] <= axes.get_ylim()[1]:
            axes.axhline(step["value"], color="red", linestyle="--", linewidth=0.8)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _format(v, defaults["unit"])))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.0f} s" if v else "now"))
    axes.grid(color="0.9")
    axes.legend(fontsize=6.5, loc="upper left", framealpha=0.7)


def _draw_number(axes: Any, panel: dict[str, Any], found: list[tuple[str, Series]]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    steps = defaults.get("thresholds", {}).get("steps", ())
    for line, (name, series) in enumerate(found):
        value = series.values[-1]
        is_bad = any(step["value"] is not None and value > step["value"] for step in steps)
        text = _format(value, defaults["unit"])
        text = f"{name}: {text}" if len(found) > 1 else text
        axes.text(
            0.5,
            1 - (line + 0.5) / len(found),
            text,
            transform=axes.transAxes,
            fontsize=18 if len(found) == 1 else 11,
            color="tab:red" if is_bad else "tab:green",
            ha="center",
            va="center",
        )
    axes.axis("off")


def _draw_table(axes: Any, panel: dict[str, Any], found: list[tuple[str, Series]]) -> None:
    columns = sorted({name for _, series in found for name in series.labels})
    cells = [
        [*(series.labels.get(name, "") for name in columns), f"{series.values[-1]:g}"]
        for _, series in found
    ]
    table = axes.table(cells, colLabels=[*columns, found[0][0]], loc="upper center")
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    table.scale(1, 1.4)
    axes.axis("off")


def _draw_heatmap(axes: Any, panel: dict[str, Any], found: list[tuple[str, Series]]) -> None:
    buckets = sorted((float(series.labels["le"]), series) for _, series in found)
    times = sorted({moment for _, series in buckets for moment in series.times})
    cumulated = np.array([_at(series, times) for _, series in buckets])
    counts = np.diff(cumulated, axis=0, prepend=0)
    axes.imshow(
        np.nan_to_num(counts),
        aspect="auto",
        origin="lower",
        cmap="Blues",
        extent=(times[0] - times[-1], 0, -0.5, len(buckets) - 0.5),
    )
    axes.set_yticks(range(len(buckets)), [_format(bound, "s") for bound, _ in buckets])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.0f} s" if v else "now"))


def _at(series: Series, times: list[float]) -> list[float]:
    values = dict(zip(series.times, series.values, strict=True))
    return [values.get(moment, 0.0) for moment in times]


def _legend(template: str, series: Series) -> str:
    for name, value in series.labels.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return template


def _format(value: float, unit: str) -> str:
    """Write a value in Grafana's unit."""
    if math.isinf(value):
        return "more"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"
    if unit == "bytes":
        return f"{value / 2**20:.4g} MiB"
    suffix = {"reqps": " /s", "cps": " /s"}.get(unit, unit.removeprefix("suffix:"))
    suffix = "" if suffix == "none" else suffix
    for scale, letter in _SCALES:
        if value >= scale:
            return f"{value / scale:.3g}{letter}{suffix}"
    return f"{value:.3g}{suffix}"


if __name__ == "__main__":
    sys.exit(main())

"""From a `Board` to the JSON that Grafana loads, through Grafana's own library."""

from __future__ import annotations

import json
import string
from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import GraphThresholdsStyleMode, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.grafana.board import JOB, Board, Panel, Query
from deploy.grafana.queries import ALL

__all__ = ["to_json"]

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_TAG = "dragoman"
_UNITS = {"cores": "suffix: cores"}
_BUILDERS: dict[str, Any] = {
    "heatmap": heatmap.Panel,
    "stat": stat.Panel,
    "table": table.Panel,
    "timeseries": timeseries.Panel,
}
_STACKED_OPACITY = 40
_LINE_OPACITY = 8


def to_json(board: Board) -> str:
    """Write a dashboard, sorted and indented, with a line feed at the end."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([_TAG])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Dragoman")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )
    for name, matchers in (
        ("namespace", ""),
        ("job", '{namespace=~"$namespace"}'),
        ("instance", f"{{{JOB}}}"),
        ("model", f"{{{JOB}}}"),
    ):
        query = f"label_values(dragoman_model_info{matchers}, {name})"
        builder = builder.with_variable(_variable(name, query))
    number = 0
    for row in board.rows:
        builder = builder.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            number += 1
            builder = builder.with_panel(_panel(panel, number))
    document = json.loads(JSONEncoder().encode(builder.build()))
    for variable in document["templating"]["list"]:  # what belongs to variables of another kind
        for key in ("auto", "auto_count", "auto_min"):
            del variable[key]
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .query({"query": query, "refId": name})
        .datasource(_SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(ALL[name])
    )


def _panel(panel: Panel, number: int) -> Any:
    builder = (
        _BUILDERS[panel.kind]()
        .id(number)
        .title(panel.title)
        .description(panel.description)
        .unit(_UNITS.get(panel.unit, panel.unit))
        .datasource(_SOURCE)
        .span(panel.width)
        .height(panel.height)
    )
    for letter, query in zip(string.ascii_uppercase, panel.queries, strict=False):
        builder = builder.with_target(_target(panel, query, letter))
    if panel.kind in {"timeseries", "stat"}:
        builder = builder.min(0)
        if panel.max is not None:
            builder = builder.max(panel.max)
        if panel.warn_above is not None:
            builder = builder.thresholds(_thresholds(panel.warn_above))
    if panel.kind == "timeseries":
        builder = _draw_lines(builder, panel)
    if panel.kind == "table":
        (query,) = panel.queries
        options = {"excludeByName": {"Time": True}, "renameByName": {"Value": query.legend}}
        builder = builder.with_transformation(
            DataTransformerConfig(id_val="organize", options=options)
        )
    return builder


def _target(panel: Panel, query: Query, letter: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(letter)
    if panel.kind == "table":
        return target.instant().format(PromQueryFormat.TABLE)
    if panel.kind == "stat":
        return target.instant()
    if panel.kind == "heatmap":
        return target.range().format(PromQueryFormat.HEATMAP)
    return target.range()


def _thresholds(warn_above: float) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(color="green"), Threshold(value=warn_above, color="red")])
    )


def _draw_lines(builder: Any, panel: Panel) -> Any:
    if panel.is_stacked:
        stacking = common.StackingConfig().mode(StackingMode.NORMAL).group("A")
        builder = builder.stacking(stacking).fill_opacity(_STACKED_OPACITY)
    else:
        builder = builder.fill_opacity(_LINE_OPACITY)
    if panel.warn_above is not None:
        builder = builder.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        )
    return builder

"""The committed dashboards are what the code makes, are valid for Grafana, and ask for metrics that exist."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deploy.grafana.__main__ import BOARDS, DIRECTORY
from deploy.grafana.board import Board
from deploy.grafana.grafana_json import to_json
from tests.promql import exported_samples, faults, selectors

GRAFANA = Path(__file__).resolve().parents[4] / "deploy" / "grafana"
BY_UID = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


@functools.cache
def _schema() -> dict[str, Any]:
    """Grafana's schema; what is a record of anything in TypeScript may have any key."""
    schema: dict[str, Any] = json.loads(
        (GRAFANA / "schema" / "dashboard.schema.json").read_text("utf-8")
    )

    def open_records(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("additionalProperties") is False and "properties" not in node:
                del node["additionalProperties"]
            for value in node.values():
                open_records(value)
        elif isinstance(node, list):
            for value in node:
                open_records(value)

    open_records(schema)
    return schema


def _faults(document: object, *, is_panel: bool = False) -> list[str]:
    """Of a panel alone the faults are told each; of a dashboard, only that the panel fits no kind of panel."""
    schema = _schema()
    if is_panel:
        (name,) = [name for name in schema["definitions"] if name.startswith("Panel<")]
        schema = {**schema["definitions"][name], "definitions": schema["definitions"]}
    return [
        f"{list(error.absolute_path)}: {error.message[:200]}"
        for error in jsonschema.Draft7Validator(schema).iter_errors(document)
    ]


def _document(board: Board) -> Any:
    return json.loads((DIRECTORY / f"{board.uid}.json").read_text("utf-8"))


def _panels(board: Board) -> list[Any]:
    return [panel for panel in _document(board)["panels"] if panel["type"] != "row"]


def test_no_dashboard_lies_about_that_no_code_makes() -> None:
    assert {path.stem for path in DIRECTORY.iterdir()} == {board.uid for board in BOARDS}


@BY_UID
def test_making_it_again_changes_nothing(board: Board) -> None:
    assert (DIRECTORY / f"{board.uid}.json").read_text("utf-8") == to_json(board), (
        "run `make dashboards`"
    )


@BY_UID
def test_grafanas_own_schema_accepts_it(board: Board) -> None:
    for panel in _panels(board):
        assert _faults(panel, is_panel=True) == []
    assert _faults(_document(board)) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda panel: panel.update(nonsense=1),
        lambda panel: panel.update(title=7),
        lambda panel: panel.pop("type"),
        lambda panel: panel["gridPos"].update(w="wide"),
        lambda panel: panel["fieldConfig"]["defaults"].update(unit=["s"]),
    ],
)
def test_the_schema_refuses_what_grafana_does_not_know(damage: Any) -> None:
    document = _document(BOARDS[0])
    damage(next(panel for panel in document["panels"] if panel["type"] == "timeseries"))
    assert _faults(document)


@BY_UID
def test_every_panel_has_a_unit_a_description_and_queries(board: Board) -> None:
    titles = set()
    for panel in _panels(board):
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len(panel["description"]) > 20
        assert panel["targets"]
        assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])
        titles.add(panel["title"])
    assert len(titles) == len(_panels(board))


@BY_UID
def test_every_query_asks_for_what_exists(board: Board) -> None:
    for panel in _panels(board):
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "1m")
            assert faults(query, exported_samples()) == [], panel["title"]


@BY_UID
def test_all_jobs_are_those_of_dragoman_and_not_of_everything_that_prometheus_scrapes(
    board: Board,
) -> None:
    variables = {each["name"]: each for each in _document(board)["templating"]["list"]}
    every_job = variables["job"]["allValue"]

    assert [
        job
        for job in ("dragoman", "mt/dragoman", "dragoman-de")
        if not re.fullmatch(every_job, job)
    ] == []
    assert not re.fullmatch(every_job, "node-exporter")
    assert re.fullmatch(
        variables["namespace"]["allValue"], ""
    )  # outside of Kubernetes there is none


@BY_UID
def test_every_query_is_about_the_chosen_namespaces_and_jobs(board: Board) -> None:
    for panel in _panels(board):
        for target in panel["targets"]:
            for selector in selectors(target["expr"].replace("$__rate_interval", "1m")):
                chosen = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
                assert chosen["namespace"] == "$namespace", panel["title"]
                assert chosen["job"] == "$job", panel["title"]


@BY_UID
def test_panels_fill_rows_of_24_columns_without_overlap(board: Board) -> None:
    for row in board.rows:
        widths = [panel.width for panel in row.panels]
        assert sum(widths) % 24 == 0, row.title
    taken: set[tuple[int, int]] = set()
    for panel in _document(board)["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_operators_see_everything_that_the_service_is_about() -> None:
    shown = " ".join(panel["title"] + panel["description"] for panel in _panels(BOARDS[0])).lower()
    for subject in (
        "calls", "refused", "quantiles", "queue", "occupancy", "padding", "caches", "guard",
        "processor", "memory", "step",
    ):  # fmt: skip
        assert subject in shown

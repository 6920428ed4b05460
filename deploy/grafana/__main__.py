"""Write the dashboards: `python -m deploy.grafana`. They are committed; a test holds them to the code."""

from __future__ import annotations

from pathlib import Path

from deploy.grafana.grafana_json import to_json
from deploy.grafana.models import MODELS
from deploy.grafana.operators import OPERATORS

__all__ = ["BOARDS", "DIRECTORY", "main"]

BOARDS = (OPERATORS, MODELS)
DIRECTORY = Path(__file__).parent / "dashboards"


def main() -> None:
    """Write one file for each dashboard."""
    for board in BOARDS:
        (DIRECTORY / f"{board.uid}.json").write_text(to_json(board), encoding="utf-8")


if __name__ == "__main__":
    main()

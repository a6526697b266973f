"""Published numbers that lie outside our intervals, each with a cause that a run has tested, or `unexplained`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixerscope.experiments.paper.tables import OUTSIDE, Beside

UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Disagreement:
    """One cell."""

    figure: str
    cell: Beside
    cause: str


def disagreements(figure: str, cells: Iterable[Beside]) -> list[Disagreement]:
    """The cells of a figure that disagree."""
    known = _causes()
    return [Disagreement(figure, cell, _cause(figure, cell, known)) for cell in cells if cell.outcome == OUTSIDE]


def _causes() -> list[dict[str, Any]]:
    path = Path(__file__).parent / "causes.json"
    return json.loads(path.read_text(encoding="utf-8"))["causes"]


def _cause(figure: str, cell: Beside, known: list[dict[str, Any]]) -> str:
    for said in known:
        if (said["figure"], said["row"]) == (figure, cell.row) and cell.width in said["widths"]:
            return f"{said['cause']} ({said['tested_by']})"
    return UNEXPLAINED

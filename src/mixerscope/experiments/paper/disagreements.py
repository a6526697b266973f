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
    known = load_causes()
    return [Disagreement(figure, cell, _cause(figure, cell, known)) for cell in cells if cell.outcome == OUTSIDE]


def load_causes() -> dict[str, Any]:
    """What runs have found out: `causes`, and what they have `ruled_out`."""
    return json.loads((Path(__file__).parent / "causes.json").read_text(encoding="utf-8"))


def _cause(figure: str, cell: Beside, known: dict[str, Any]) -> str:
    def said_of(kind: str) -> list[str]:
        return [
            f"{said['cause']} ({said['tested_by']})"
            for said in known[kind]
            if (said["figure"], said["row"]) == (figure, cell.row)
            and cell.panel in said["panels"]
            and cell.width in said["widths"]
        ]

    return "; ".join(said_of("causes")[:1] or [UNEXPLAINED, *said_of("ruled_out")])

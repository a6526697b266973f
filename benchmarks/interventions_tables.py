"""What the benchmark of interventions found, as tables for the docs."""

from collections.abc import Mapping
from typing import Any

from benchmarks.paste import table

OURS, BEFORE, FACTS = "mixerscope", "mixerscope 0.1", "mixerscope, query corrupted too"
AS_PUBLISHED, USED_WELL, NNSIGHT = "pyvene as published", "pyvene used well", "nnsight used well"
COMPARED = (BEFORE, AS_PUBLISHED, USED_WELL, NNSIGHT, FACTS)
PAGE = "interventions.md"


def tables(content: Mapping[str, Any]) -> dict[str, str]:
    """By the name of its place on the page."""
    return {
        "speed of the published grid": _grids(content["rows"]),
        "speed of larger grids": _plans(content["plans"]),
    }


def _grids(rows: list[dict[str, Any]]) -> str:
    found = {(row["architecture"], row["width"], row["tool"]): row for row in rows}
    settings = sorted(dict.fromkeys((row["architecture"], row["width"]) for row in rows))
    lines: list[list[str]] = []
    for setting in settings:
        ours = found[*setting, OURS]
        compared = [_ratio(found.get((*setting, tool))) for tool in COMPARED]
        lines.append([f"{setting[0]}, d = {setting[1]}", _seconds(ours), *compared])
    return table(["model", "Mixerscope", "0.1", *(name.removeprefix("mixerscope, ") for name in COMPARED[1:])], lines)


def _plans(rows: list[dict[str, Any]]) -> str:
    lines = [
        [f"{row['architecture']}, d = {row['width']}", row["plan"], str(row["cells"]), _seconds(row), _ratio(row)]
        for row in rows
    ]
    return table(["model", "grid", "cells", "seconds", "ratio"], lines)


def _seconds(row: dict[str, Any]) -> str:
    return f"{row['seconds']['median']:.3f} s"


def _ratio(row: dict[str, Any] | None) -> str:
    if row is None:
        return "·"
    middle, (low, high) = row["ratio"]["median"], row["ratio"]["range"]
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"

"""Damaged runs: named and left out, or refused."""

from pathlib import Path
from typing import TYPE_CHECKING

from mixerscope.errors import CorruptFile, remark

if TYPE_CHECKING:
    from mixerscope.results import RunResult


def sound_runs(folder: Path, strict: bool) -> "tuple[list[RunResult], int]":
    """The runs of a folder that are whole, and how many are not: each is named on stderr, or with `strict` refused."""
    from mixerscope.results import load_runs

    damaged: list[str] = []
    found = load_runs(folder, damaged)
    if strict and damaged:
        raise CorruptFile("; ".join(damaged))
    for complaint in damaged:
        remark(f"left out: {complaint}")
    return found, len(damaged)

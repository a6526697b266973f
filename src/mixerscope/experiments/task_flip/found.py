"""What the study says of a claim."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["supported", "contradicted", "untestable"]
LEAST_SEEDS = 3
"""Of a cell, that learned the task."""


@dataclass(frozen=True)
class Found:
    """An outcome, with the number it rests on."""

    outcome: Outcome
    effect: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    """Of the cell that has fewest."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def untestable(why: str, seeds: int = 0) -> Found:
    return Found("untestable", why, seeds=seeds)


def left_open(asked: float, low: float | None, high: float | None) -> str:
    """What is added where a number decides, and its interval does not."""
    within = low is not None and high is not None and low < asked <= high
    return f"; {asked} lies within the interval, so that other seeds may say otherwise" if within else ""


def above(effect: str, value: float, low: float | None, high: float | None, seeds: int, needed: float = 0.0) -> Found:
    """Supported where the whole interval is above what is needed."""
    if low is None:
        return untestable(f"{effect}; too few seeds for an interval", seeds)
    return Found("supported" if low > needed else "contradicted", effect, value, low, high, seeds)

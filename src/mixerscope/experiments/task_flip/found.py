"""What the study says of a claim."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Outcome = Literal["supported", "contradicted", "open", "untestable"]
"""Open is what was tested and is not told: its interval holds what supports a sentence and what contradicts it."""
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


def decided_at(asked: float, found: Found) -> Found:
    """Open where what decides lies within the interval: other seeds may say otherwise."""
    if found.low is None or found.high is None or not found.low <= asked <= found.high or found.low == found.high:
        return found
    effect = f"{found.effect}; {asked:g} lies within the interval, so that other seeds may say otherwise"
    return replace(found, outcome="open", effect=effect)


def above(effect: str, value: float, low: float | None, high: float | None, seeds: int, needed: float = 0.0) -> Found:
    """Supported where the whole interval is above what is needed, contradicted where none of it is."""
    if low is None:
        return untestable(f"{effect}; too few seeds for an interval", seeds)
    outcome: Outcome = "supported" if value > needed else "contradicted"
    return decided_at(needed, Found(outcome, effect, value, low, high, seeds))


def wholly_above(effect: str, value: float, low: float | None, high: float | None, seeds: int) -> Found:
    """Supported where the whole interval is above 0, contradicted where it contains 0: that is what is written of the
    flip."""
    if low is None:
        return untestable(f"{effect}; too few seeds for an interval", seeds)
    return Found("supported" if low > 0 else "contradicted", effect, value, low, high, seeds)

"""A number with its interval."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over n documents, or over n seeds."""

    value: float
    low: float
    high: float
    n: int

"""A number with its interval."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval over n documents, or over n seeds."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def as_columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Value and interval as three columns of a table."""
    ends = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    if estimate is None:
        return dict.fromkeys((name, *ends))
    return dict(zip((name, *ends), (estimate.value, estimate.low, estimate.high), strict=True))

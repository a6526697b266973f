"""Numbers as the page writes them."""

import json
from dataclasses import asdict, is_dataclass
from typing import Any


def percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def points(value: float) -> str:
    """Percent where the sign stands beside it already."""
    return f"{100 * value:.1f}"


def whole_percent(value: float) -> str:
    return f"{100 * value:.0f}%"


def number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def short(value: float) -> str:
    """Two digits; what is less than one does not become 1.00."""
    return f"{0.99 if 0.99 < value < 1 else value:.2f}".replace("-", "−")


def clamped(value: float) -> str:
    """Where a bar from 0 to 1 ends."""
    return f"{min(1.0, max(0.0, value)):.4f}"


def thousands(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def tiny(value: float) -> str:
    """An error: nothing but zero itself is called zero."""
    return "exactly 0" if value == 0 else f"{value:.1e}"


def pretty(value: Any) -> str:
    """JSON that people can read, of an artifact or of plain data."""
    data = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return json.dumps(data, indent=2, ensure_ascii=False)


FILTERS = {
    function.__name__: function
    for function in (percent, points, whole_percent, number, short, clamped, thousands, tiny, pretty)
}
"""For the templates."""

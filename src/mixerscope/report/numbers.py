"""Numbers as the page writes them."""

import json
from typing import Any


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def points(value: float) -> str:
    """Percent where the sign stands beside it already."""
    return f"{100 * value:.1f}"


def whole_percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def thousands(value: int) -> str:
    return f"{value:,}".replace(",", "\u2009")


def tiny(value: float) -> str:
    """An error: nothing but zero itself is called zero."""
    return "exactly 0" if value == 0 else f"{value:.1e}"


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


FILTERS = {
    function.__name__: function for function in (percent, points, whole_percent, number, thousands, tiny, pretty)
}
"""For the templates."""

"""Attention patterns and state norms, as the page draws them."""

from dataclasses import astuple
from typing import Any

from mixerscope.artifacts import Estimate, Patterns

PATTERN_NUMBERS = 600_000
"""Weights of single documents that one page holds, about 1 MB; of further models it holds the means over documents."""


def as_json(patterns: Patterns, room: int) -> dict[str, Any]:
    """Weights as whole thousandths; those of the example only where there is room for so many numbers."""
    numbers = sum(len(row) for one in patterns.attention for row in one.example)
    fits = numbers <= room
    return {
        "numbers": numbers if fits else 0,
        "tokens": patterns.tokens,
        "roles": patterns.roles,
        "looking": patterns.looking,
        "n": patterns.documents,
        "heads": [
            {
                "block": one.block,
                "head": one.head,
                "rows": [[round(1000 * weight) for weight in row] for row in one.example] if fits else None,
                "between": {a: {b: _told(e) for b, e in seen.items()} for a, seen in one.between.items()},
            }
            for one in patterns.attention
        ],
        "states": [
            {
                "block": one.block,
                "size": one.size,
                "norms": one.example,
                "at": {role: _told(e) for role, e in one.at.items()},
            }
            for one in patterns.states
        ],
    }


def _told(estimate: Estimate) -> list[Any]:
    value, low, high, n = astuple(estimate)
    return [round(value, 4), round(low, 4), round(high, 4), n]

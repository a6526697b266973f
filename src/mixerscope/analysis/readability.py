"""What curves of readability over depth look like: late, early, gradual; and how two of them differ.

A curve has a number from 0 to 1 at every boundary between blocks, the embedding first. Nothing here is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

Shape = Literal["late", "early", "gradual", "mixed", "unreadable"]
LEAST_ROOM = 0.05
"""Between what is read without a model and what the model itself gets right; with less nothing can be normalised."""


@dataclass(frozen=True)
class ShapeRules:
    """Thresholds of a shape; they are conventions, so results are shown with others too."""

    jump: float = 0.5
    """Share of all that is gained which the largest step of a concentrated curve makes."""
    ramp: float = 0.5
    """Share of the depth over which a gradual curve rises from a tenth to nine tenths of its height."""
    third: float = 1 / 3
    """Share of the depth at either end that is early, and late."""


@dataclass(frozen=True)
class Profile:
    """The statistics of one curve; None where the curve never rises."""

    jump: float | None
    """Share of the largest gain."""
    at: int | None
    """Which boundary it is made at."""
    evenness: float | None
    """0 where all boundaries gain the same, 1 where one of them gains all."""
    lateness: float | None
    """Mean depth of the gains, from 0 (embedding) to 1 (last block)."""
    ramp: float | None
    """Depth between a tenth and nine tenths of the height."""
    area: float
    """Mean of the curve."""
    shape: Shape


def readability(accuracy: float, floor: float, ceiling: float) -> float | None:
    """How far a probe gets from what is read without a model to what the model itself gets right, from 0 to 1."""
    if ceiling - floor < LEAST_ROOM:
        return None
    return min(1.0, max(0.0, (accuracy - floor) / (ceiling - floor)))


def profile(curve: Sequence[float], rules: ShapeRules | None = None) -> Profile:
    """What a curve over the boundaries looks like."""
    rules = rules or ShapeRules()
    depth = len(curve) - 1
    area = sum(curve) / len(curve)
    highest, gains = 0.0, []
    for value in curve:
        gains.append(max(0.0, value - highest))
        highest = max(highest, value)
    total = sum(gains)
    if total <= 0 or depth < 1:
        return Profile(None, None, None, None, None, area, "unreadable")
    shares = [gain / total for gain in gains]
    jump, count = max(shares), len(shares)
    at = shares.index(jump)
    evenness = (sum(share**2 for share in shares) - 1 / count) / (1 - 1 / count)
    lateness = sum(share * i / depth for i, share in enumerate(shares))
    reached = [sum(shares[: i + 1]) for i in range(count)]
    first = next(i for i, share in enumerate(reached) if share >= 0.1)
    last = next(i for i, share in enumerate(reached) if share >= 0.9 - 1e-12)
    ramp = (last - first) / depth
    shape: Shape = "mixed"
    if jump >= rules.jump and at / depth > 1 - rules.third:
        shape = "late"
    elif jump >= rules.jump and at / depth < rules.third:
        shape = "early"
    elif jump < rules.jump and ramp >= rules.ramp:
        shape = "gradual"
    return Profile(jump, at, evenness, lateness, ramp, area, shape)


def shapes_under_other_rules(curve: Sequence[float], change: float = 0.1) -> tuple[Shape, ...]:
    """The shapes with each threshold moved up and down: the same everywhere, or the name rests on a convention."""
    usual = ShapeRules()
    moved = [
        ShapeRules(*(value + step * change for value, step in zip(vars(usual).values(), steps, strict=True)))
        for steps in product((-1, 0, 1), repeat=len(vars(usual)))
        if any(steps)
    ]
    return tuple(profile(curve, rules).shape for rules in moved)


def flip(recurrent: tuple[float, float], attention: tuple[float, float]) -> float:
    """How the lateness of a recurrent model minus that of a Transformer changes from brackets to parity; each pair is
    (parity, brackets). Above 0 is the flip that was claimed."""
    return (recurrent[0] - attention[0]) - (recurrent[1] - attention[1])


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Mean difference between two curves over the same boundaries."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def grouping(asked: Sequence[float], parity: Sequence[float], brackets: Sequence[float]) -> float:
    """Above 0 where a curve lies nearer that of parity than that of brackets."""
    return distance(asked, brackets) - distance(asked, parity)


def goes_with(asked: Sequence[float], parity: Sequence[float], brackets: Sequence[float]) -> float:
    """Above 0 where a curve lies nearer that of parity than that of brackets, and nearer it than brackets do. On the
    far side of parity a curve has all of the grouping there can be, however far away it is."""
    return min(grouping(asked, parity, brackets), distance(parity, brackets) - distance(asked, parity))

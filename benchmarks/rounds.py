"""Tools timed in turns: what disturbs a machine for a while disturbs all of them, and their ratios little."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")


class Spread(NamedTuple):
    """The median over rounds, and the range."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        return Spread(statistics.median(values), min(values), max(values))

    def rounded(self, digits: int) -> dict[str, Any]:
        return {"median": round(self.median, digits), "range": [round(self.low, digits), round(self.high, digits)]}


def in_turns(turns: Sequence[str], rounds: int, run: Callable[[str, int], float]) -> dict[str, list[float]]:
    """By tool, its seconds in each round: the median of its turns there. Every other round goes backwards, so that
    none is always the one that comes after a slow one."""
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds):
        taken: dict[str, list[float]] = {name: [] for name in turns}
        for name in turns if number % 2 == 0 else reversed(turns):
            taken[name].append(run(name, number))
        for name, times in taken.items():
            seconds[name].append(statistics.median(times))
    return seconds


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """Round by round."""
    return Spread.of([one / other for one, other in zip(of, to, strict=True)])


def share(items: Sequence[Item], number: int, count: int) -> list[Item]:
    """Part `number` of `count` parts, as equal as can be, that are all items together; it goes on from the start."""
    return list(items[number % count :: count])

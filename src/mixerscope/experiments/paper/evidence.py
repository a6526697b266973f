"""What a claim is tested with: numbers of figures by seed, from what is kept."""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from mixerscope.experiments.paper.collect import NO_PROOF
from mixerscope.experiments.paper.data import Results, share_of
from mixerscope.experiments.paper.panels import CORRUPTED, ORIGINAL, RESTORED, named
from mixerscope.experiments.paper.render import figure_module

BySeed = dict[int, float]
Cells = dict[str, BySeed]
"""What was measured, by a label such as `Mamba d=64`, in each seed."""
LEAST_GAP = 1.0
"""Points of likelihood that corrupting must cost for a share of it to mean something (the paper's threshold)."""


@dataclass
class Numbers:
    """Figures' numbers, worked out once."""

    results: Results
    _figures: dict[str, dict[tuple[str, str, int], BySeed]] = field(default_factory=dict)

    def figure(self, name: str) -> dict[tuple[str, str, int], BySeed]:
        """By panel, row and width, each seed's number."""
        if name not in self._figures:
            found: dict[tuple[str, str, int], BySeed] = {}
            for row in figure_module(name).rows(self.results):
                if row["value"] is not None:
                    found.setdefault((row["panel"], row["row"], row["width"]), {})[row["seed"]] = row["value"]
            self._figures[name] = found
        return self._figures[name]

    def at(self, figure: str, panel: str, row: str, width: int) -> BySeed:
        """Nothing where it was not run."""
        return self.figure(figure).get((panel, row, width), {})

    def share(self, figure: str, role: str, row: str, width: int) -> BySeed:
        """What restoring a role brings back, as a part of what corrupting took; of models that lose enough."""
        three = [self.at(figure, panel, row, width) for panel in (RESTORED[role], CORRUPTED, ORIGINAL)]
        return combined(lambda back, low, high: share_of(back, high, low, LEAST_GAP), *three)

    def margin(self, figure: str, roles: Iterable[str], over: Iterable[str], row: str, width: int) -> BySeed:
        """The largest share of some roles minus that of others."""
        one, other = ([self.share(figure, role, row, width) for role in own] for own in (roles, over))
        return combined(lambda *shares: max(shares[: len(one)]) - max(shares[len(one) :]), *one, *other)

    @cached_property
    def _verdicts(self) -> dict[tuple[str, str], pl.DataFrame]:
        return {}

    def named_as(self, figure: str, part: str, row: str, width: int, mechanism: str) -> BySeed:
        """1 where the proven verdict of the best run is this one and 0 where it is not; runs without a proof are left
        out."""
        if (figure, part) not in self._verdicts:
            self._verdicts[figure, part] = named(self.results.best(self.results.part(figure, part)))
        runs = self._verdicts[figure, part]
        own = runs.filter((pl.col("name") == row) & (pl.col("width") == width) & pl.col("mechanism").is_not_null())
        own = own.filter(pl.col("proof") & (pl.col("mechanism") != NO_PROOF))
        return {run["seed"]: float(run["mechanism"] == mechanism) for run in own.iter_rows(named=True)}


def combined(rule: Callable[..., float | None], *parts: Mapping[int, float]) -> BySeed:
    """A number a seed, from those that every part has; a rule that gives None leaves the seed out."""
    seeds = set.intersection(*(set(part) for part in parts)) if parts else set()
    found = {seed: rule(*(part[seed] for part in parts)) for seed in sorted(seeds)}
    return {seed: value for seed, value in found.items() if value is not None}


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> BySeed:
    """Of two numbers of the same models."""
    return combined(lambda a, b: a - b, one, other)


def ahead_of(one: Mapping[int, float], *others: Mapping[int, float]) -> BySeed:
    """How far each model is ahead of the best of other kinds, each of them at its median seed: seeds of different kinds
    of models have nothing in common, so that none of them belongs to another. All of the kinds must have been run."""
    if not all(others):
        return {}
    best = max(statistics.median(other.values()) for other in others)
    return {seed: value - best for seed, value in one.items()}


def over_widths(row: str, widths: Iterable[int], measured: Callable[[str, int], BySeed]) -> Cells:
    """One cell a width."""
    return {f"{row} d={width}": measured(row, width) for width in widths}

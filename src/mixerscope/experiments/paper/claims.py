"""Sentences of the paper that its figures support, each with a test on our runs.

A claim is data (`claims.json`: our words, the paper's section, the figure); its test is code (`claim_tests`). It gives
a number for every cell that the sentence is about and every seed, and says how large it must be. The claim holds where
every cell (or as many as the sentence says) does at its median seed and nine tenths of all models do; it is weaker than
stated where more than half of those cells do, and else does not hold. It is tested where half of its cells were run.
"""

import json
import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from mixerscope.analysis.prediction import share_of_draws
from mixerscope.analysis.quantiles import exact_interval
from mixerscope.experiments.paper.data import Results
from mixerscope.experiments.paper.evidence import Cells, Numbers

HOLDS, WEAKER, FAILS, NOT_TESTED = "holds", "weaker than stated", "does not hold", "not tested"
ENOUGH_SEEDS = 3
MODELS_NEEDED = 0.9
"""Share of the models that must pass for a sentence about all of them."""
DRAWS = 500
LEAST_RUN = 0.5
"""Share of a sentence's cells that must have been run."""


@dataclass(frozen=True)
class Claim:
    """One sentence."""

    id: str
    sentence: str
    section: str
    figure: str

    @property
    def command(self) -> str:
        return f"mixerscope reproduce {self.figure}"


@dataclass(frozen=True)
class Evidence:
    """What a test measured."""

    cells: Cells
    needed: float
    """Each number must be above it; with `below`, below it."""
    of: str
    """What the numbers are."""
    below: bool = False
    of_cells: float = 1.0
    """Share of its cells that the sentence speaks of: all, or most."""

    def passes(self, value: float) -> bool:
        return value < self.needed if self.below else value > self.needed


@dataclass(frozen=True)
class Tested:
    """A claim and what became of it."""

    claim: Claim
    outcome: str
    effect: str
    """Median over all models, with the range, and what was needed."""
    seeds: int
    """Of the cell that has fewest."""
    models: int
    passed: int
    interval: tuple[float, float] | None
    """Of the share of models, not only these, that pass: 95%."""
    again: float | None
    """In which share of draws of seeds, with replacement within each cell, the outcome is the same; None where it was
    not tested, or a cell has one seed."""
    missing: tuple[str, ...]
    """Cells that the sentence is about and that were not run, or did not learn enough to be asked."""


Test = Callable[[Numbers], Evidence]


def load_claims() -> list[Claim]:
    data = json.loads((Path(__file__).parent / "claims.json").read_text(encoding="utf-8"))
    return [Claim(**said) for said in data]


def tested_claims(results: Results) -> list[Tested]:
    """Every claim, in the order of the paper."""
    from mixerscope.experiments.paper.claim_tests_more import TESTS  # the tests need what is defined here

    numbers = Numbers(results)
    return [judged(claim, TESTS[claim.id](numbers)) for claim in load_claims()]


def judged(claim: Claim, evidence: Evidence) -> Tested:
    """What the evidence makes of a claim."""
    cells = {label: list(by_seed.values()) for label, by_seed in evidence.cells.items() if by_seed}
    missing = tuple(label for label, by_seed in evidence.cells.items() if not by_seed)
    values = [value for own in cells.values() for value in own]
    if not values:
        return Tested(claim, NOT_TESTED, "", 0, 0, 0, None, None, missing)
    passing = [evidence.passes(statistics.median(own)) for own in cells.values()]
    passed = sum(evidence.passes(value) for value in values)
    sign = "<" if evidence.below else ">"
    spread = f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"
    outcome, again = _outcome(evidence, cells.values()), _same_again(evidence, cells.values())
    left = f", {len(missing)} not measured" if missing else ""
    left += ", which cannot change it" if missing and _is_settled(evidence, cells.values(), len(missing)) else ""
    effect = f"{evidence.of}: {spread}, needed {sign} {evidence.needed:g}; {sum(passing)} of {len(passing)} cells{left}"
    if len(cells) < LEAST_RUN * len(evidence.cells):
        outcome, again, effect = NOT_TESTED, None, f"{effect}: too few to say"
    interval = exact_interval(passed, len(values))
    seeds = min(map(len, cells.values()))
    return Tested(claim, outcome, effect, seeds, len(values), passed, interval, again, missing)


def _is_settled(evidence: Evidence, cells: Collection[Sequence[float]], missing: int) -> bool:
    """Whether the outcome is the same whatever comes of the cells that were not measured, with as many seeds."""
    seeds = round(statistics.mean(map(len, cells)))
    extremes = [[[value] * seeds] * missing for value in (math.inf, -math.inf)]
    return len({_outcome(evidence, [*cells, *more]) for more in extremes}) == 1


def _same_again(evidence: Evidence, cells: Collection[Sequence[float]]) -> float | None:
    """How far an outcome is one of these seeds."""
    if min(map(len, cells)) < 2:
        return None
    outcome = _outcome(evidence, cells)
    return share_of_draws(dict(enumerate(cells)), lambda of: _outcome(evidence, of.values()) == outcome, DRAWS)


def _outcome(evidence: Evidence, values: Collection[Sequence[float]]) -> str:
    """Of numbers of the models of each cell."""
    every = [value for own in values for value in own]
    cells = sum(evidence.passes(statistics.median(own)) for own in values) / len(values)
    models = sum(map(evidence.passes, every)) / len(every)
    if cells >= evidence.of_cells and (models >= MODELS_NEEDED or evidence.of_cells < 1):
        return HOLDS
    return WEAKER if cells > evidence.of_cells / 2 else FAILS


def counted(found: list[Tested]) -> dict[str, int]:
    """How many claims have each outcome, and how many of the tested ones have three seeds."""
    outcomes = {name: sum(one.outcome == name for one in found) for name in (HOLDS, WEAKER, FAILS, NOT_TESTED)}
    return {**outcomes, "with three seeds": sum(map(well_tested, found))}


def well_tested(found: Tested) -> bool:
    """Whether it was tested, with three seeds in every cell."""
    return found.outcome != NOT_TESTED and found.seeds >= ENOUGH_SEEDS

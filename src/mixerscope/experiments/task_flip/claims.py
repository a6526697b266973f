"""The published sentences, each with the test that the study gives it: supported, contradicted or untestable.

What would contradict a sentence was written down before anything was run (`claims.json`). Intervals are over seeds,
drawn again within each cell; where too few seeds learned a task nothing is said of it.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mixerscope.analysis.quantiles import exact_interval
from mixerscope.analysis.readability import profile, shapes_under_other_rules
from mixerscope.experiments.task_flip.claims_pretrained import (
    bottleneck,
    not_by_a_direction,
    tuned_elsewhere,
    tuned_flip,
)
from mixerscope.experiments.task_flip.evidence import (
    Cells,
    convolution_grouping,
    damages,
    differing_boundaries,
    flip_of,
    grouping_of,
    rank_agreement,
    residuals,
)
from mixerscope.experiments.task_flip.found import LEAST_SEEDS, Found, Outcome, above, untestable
from mixerscope.experiments.task_flip.models import Cell, Model
from mixerscope.experiments.task_flip.pretrained import Tuned
from mixerscope.experiments.task_flip.study import (
    AFTER_CLOSE,
    BRACKETS,
    PARITY,
    RECURRENT,
    RESETS,
    S3,
    TRANSFORMER,
    Z6,
)

LAYERS = 4
LEAST_DAMAGE = 0.05
"""Share of what a model knows beyond guessing; less is none."""
JUMP = 0.5
ALIKE = 0.8
CONVOLVED = ("Mamba", "Mamba-2")


@dataclass(frozen=True)
class Claim:
    """One sentence, in our words."""

    id: str
    version: str
    sentence: str
    contradicted: str
    """What would contradict it."""


def load_claims() -> list[Claim]:
    data = json.loads((Path(__file__).parent / "claims.json").read_text(encoding="utf-8"))
    return [Claim(**said) for said in data]


def decided(best: dict[Cell, list[Model]], tuned: Sequence[Tuned] = ()) -> list[tuple[Claim, Found]]:
    """Every claim, given the models of each cell that passed the gate, one a seed, and those that were fine-tuned."""
    cells = Cells(best, tuned)
    return [(claim, TESTS[claim.id](cells)) for claim in load_claims()]


def _late_on_parity(cells: Cells) -> Found:
    known = {name: cells.curves(PARITY, name) for name in RECURRENT}
    known = {name: curves for name, curves in known.items() if len(curves) >= LEAST_SEEDS}
    if len(known) < LEAST_SEEDS:
        return untestable(f"{len(known)} of {len(RECURRENT)} architectures learned parity with {LEAST_SEEDS} seeds")
    shapes = {name: [profile(curve).shape for curve in curves] for name, curves in known.items()}
    late = {name: own.count("late") / len(own) for name, own in shapes.items()}
    others = [name for name, share in late.items() if share <= 0.5]
    every = [shape for own in shapes.values() for shape in own]
    moved = [len({*shapes_under_other_rules(curve)}) > 1 for curves in known.values() for curve in curves]
    low, high = exact_interval(every.count("late"), len(every))
    said = "; ".join(f"{name} {_counted(own)}" for name, own in shapes.items())
    effect = f"{said}; the name of {sum(moved)} of {len(moved)} curves moves with its thresholds"
    outcome: Outcome = "contradicted" if len(others) >= 2 else "supported"
    return Found(outcome, effect, every.count("late") / len(every), low, high, min(map(len, known.values())))


def _counted(shapes: Sequence[str]) -> str:
    return ", ".join(f"{shapes.count(name)} {name}" for name in dict.fromkeys(shapes))


def _gradual_on_parity(cells: Cells) -> Found:
    curves = cells.curves(PARITY, TRANSFORMER)
    if len(curves) < LEAST_SEEDS:
        return untestable(f"{len(curves)} seeds of the Transformer learned parity", len(curves))
    profiles = [profile(curve) for curve in curves]
    jumps = [one.jump for one in profiles if one.jump is not None]
    if not jumps:
        return untestable("the state cannot be read anywhere", len(curves))
    low, high = cells.interval([(PARITY, TRANSFORMER)], lambda of: _median_jump(of.curves(PARITY, TRANSFORMER)))
    effect = f"largest step {statistics.median(jumps):.2f} of the gain; {_counted([one.shape for one in profiles])}"
    value = statistics.median(jumps)
    return Found("supported" if value < JUMP else "contradicted", effect, value, low, high, len(curves))


def _median_jump(curves: list[list[float]]) -> float | None:
    jumps = [one.jump for one in map(profile, curves) if one.jump is not None]
    return statistics.median(jumps) if jumps else None


def _flip(cells: Cells) -> Found:
    if cells.fewest([(PARITY, TRANSFORMER), (BRACKETS, TRANSFORMER)]) < LEAST_SEEDS:
        return untestable("too few seeds of the Transformer learned parity and brackets")
    others = [name for name in RECURRENT if cells.fewest([(PARITY, name), (BRACKETS, name)]) >= LEAST_SEEDS]
    if not others:
        return untestable("too few seeds of any recurrent architecture learned parity and brackets")
    names = [(task, name) for task in (PARITY, BRACKETS) for name in (TRANSFORMER, *others)]
    value = flip_of(cells, others)
    if value is None:
        return untestable("some curve never rises")
    low, high = cells.interval(names, lambda of: flip_of(of, others))
    single = "; ".join(f"{name} {_signed(flip_of(cells, [name]))}" for name in others)
    return above(f"flip {value:+.2f}: {single}", value, low, high, cells.fewest(names))


def _signed(value: float | None) -> str:
    return "none" if value is None else f"{value:+.2f}"


def _grouping(cells: Cells) -> Found:
    known = [name for name in (TRANSFORMER, *RECURRENT) if _grouped(cells, S3, name)]
    if len(known) < 1 + len(RECURRENT):
        lacks = [name for name in (TRANSFORMER, *RECURRENT) if name not in known]
        below = [name for name in known if (grouping_of(cells, S3, [name]) or 0.0) <= 0]
        if not below:
            return untestable(f"too few seeds learned all three tasks: {', '.join(lacks)}")
    single = {name: grouping_of(cells, S3, [name]) or 0.0 for name in known}
    names = [(task, name) for task in (PARITY, BRACKETS, S3) for name in known]
    low, high = cells.interval(names, lambda of: min(grouping_of(of, S3, [name]) or 0.0 for name in known))
    said = "; ".join(f"{name} {value:+.2f}" for name, value in single.items())
    outcome: Outcome = "supported" if min(single.values()) > 0 else "contradicted"
    return Found(outcome, said, min(single.values()), low, high, cells.fewest(names))


def _grouped(cells: Cells, task: str, name: str) -> bool:
    return cells.fewest([(each, name) for each in (PARITY, BRACKETS, task)]) >= LEAST_SEEDS


def _necessary(method: str | None, longer: bool = False) -> Callable[[Cells], Found]:
    """Damage at the inner boundary that reads best; with a method alone as it is, else by what a refit confirms and
    beyond that of random subspaces."""

    def test(cells: Cells) -> Found:
        tasks = (PARITY, BRACKETS) if longer else (PARITY, BRACKETS, S3)
        own = {key: models for key, models in cells.models.items() if key[0] in tasks and key[2] == LAYERS}
        numbers = {key: damages(models, method, longer) for key, models in own.items()}
        numbers = {key: values for key, values in numbers.items() if len(values) >= LEAST_SEEDS}
        asked = sum(map(len, own.values()))
        if not numbers:
            near = "clean answers of longer documents are too near guessing, or were not compared with random subspaces"
            why = near if longer else "nothing could be erased"
            return untestable(f"{why}, or a fresh probe still reads, in all but a few of {asked} models")
        value = statistics.fmean(statistics.fmean(values) for values in numbers.values())
        low, high = Cells.interval_of(
            numbers, lambda of: statistics.fmean(statistics.fmean(values) for values in of.values())
        )
        left = [value for models in own.values() for value in residuals(models, method)] if method else []
        rest = f", a fresh probe still reads {statistics.median(left):.2f}" if left else ""
        count = sum(map(len, numbers.values()))
        effect = f"damage {value:.2f} in {count} of {asked} models, {len(numbers)} cells{rest}"
        return above(effect, value, low, high, min(map(len, numbers.values())), LEAST_DAMAGE)

    return test


def _boundaries(cells: Cells) -> Found:
    flags = {key: differing_boundaries(models) for key, models in cells.models.items() if key[2] == LAYERS}
    flags = {key: values for key, values in flags.items() if values}
    every = [value for values in flags.values() for value in values]
    if len(every) < LEAST_SEEDS:
        return untestable("in no three models could both boundaries be told; " + tuned_elsewhere(cells))
    share = sum(every) / len(every)
    low, high = exact_interval(sum(every), len(every))
    effect = f"another boundary in {sum(every)} of {len(every)} four-layer models (inner boundaries)"
    effect = f"{effect}; {tuned_elsewhere(cells)}"
    return Found("supported" if low > 0.5 else "contradicted", effect, share, low, high, min(map(len, flags.values())))


def _through_convolutions(cells: Cells) -> Found:
    known = [
        name
        for name in CONVOLVED
        if min(sum(bool(model.taps) for model in cells.of(task, name)) for task in (S3, PARITY, BRACKETS))
        >= LEAST_SEEDS
    ]
    value = convolution_grouping(cells, known)
    if value is None:
        return untestable("what runs through the convolutions was not measured in three seeds of each task")
    names = [(task, name) for task in (S3, PARITY, BRACKETS) for name in known]
    low, high = cells.interval(names, lambda of: convolution_grouping(of, known))
    effect = f"grouping by damage without taps {value:+.2f}, in {' and '.join(known)}"
    return above(effect, value, low, high, min(len(cells.of(*name)) for name in names))


def _available_not_needed(cells: Cells) -> Found:
    by_cell = {key: rank_agreement(models) for key, models in cells.models.items() if key[2] == LAYERS}
    by_cell = {key: values for key, values in by_cell.items() if len(values) >= LEAST_SEEDS}
    if not by_cell:
        return untestable("in no cell do three seeds have both curves")
    medians = {key: statistics.median(values) for key, values in by_cell.items()}
    above = [key for key, value in medians.items() if value > ALIKE]
    value = statistics.median(medians.values())
    low, high = Cells.interval_of(
        by_cell, lambda of: statistics.median(statistics.median(values) for values in of.values())
    )
    effect = f"rank correlation {value:.2f}, above {ALIKE} in {len(above)} of {len(medians)} cells"
    outcome: Outcome = "contradicted" if len(above) == len(medians) else "supported"
    return Found(outcome, effect, value, low, high, min(map(len, by_cell.values())))


def _contrast(*tasks: str, signs: Sequence[int]) -> Callable[[Cells], Found]:
    """Whether each task goes with parity (sign 1) or with brackets (sign -1), over the architectures that learned."""

    def test(cells: Cells) -> Found:
        known = [name for name in (TRANSFORMER, *RECURRENT) if all(_grouped(cells, task, name) for task in tasks)]
        if not known:
            return untestable(
                f"no architecture learned {', '.join(tasks)}, parity and brackets with {LEAST_SEEDS} seeds"
            )
        names = [(task, name) for task in (*tasks, PARITY, BRACKETS) for name in known]

        def weakest(of: Cells) -> float | None:
            values = [grouping_of(of, task, known) for task in tasks]
            return min(sign * (value or 0.0) for sign, value in zip(signs, values, strict=True))

        value = weakest(cells)
        said = "; ".join(f"{task} {_signed(grouping_of(cells, task, known))}" for task in tasks)
        effect = f"{said}, over {len(known)} architectures"
        return above(effect, value or 0.0, *cells.interval(names, weakest), cells.fewest(names))

    return test


def _locality(cells: Cells) -> Found:
    every = (PARITY, BRACKETS, S3, RESETS, AFTER_CLOSE)
    known = [
        name for name in (TRANSFORMER, *RECURRENT) if cells.fewest([(task, name) for task in every]) >= LEAST_SEEDS
    ]
    if not known:
        return untestable(f"no architecture learned all of {', '.join(every)} with {LEAST_SEEDS} seeds")

    def moves(of: Cells) -> tuple[float, float]:
        towards_brackets = (grouping_of(of, S3, known) or 0.0) - (grouping_of(of, RESETS, known) or 0.0)
        towards_parity = (grouping_of(of, AFTER_CLOSE, known) or 0.0) - (grouping_of(of, BRACKETS, known) or 0.0)
        return towards_brackets, towards_parity

    names = [(task, name) for task in every for name in known]
    first, second = moves(cells)
    low, high = cells.interval(names, lambda of: min(moves(of)))
    effect = f"resets move S3 {first:+.2f} towards brackets, closing moves brackets {second:+.2f} towards parity"
    return above(effect, min(first, second), low, high, cells.fewest(names))


TESTS: dict[str, Callable[[Cells], Found]] = {
    "C1": _late_on_parity,
    "C2": _gradual_on_parity,
    "C3": _flip,
    "C4": tuned_flip,
    "C5": _grouping,
    "C6a": _necessary("single direction"),
    "C6b": _necessary(None),
    "C7": _necessary(None, longer=True),
    "C8": bottleneck,
    "C9": _boundaries,
    "C10": not_by_a_direction,
    "C11": _through_convolutions,
    "C12": _available_not_needed,
    "A1": _contrast(Z6, S3, signs=(1, -1)),
    "A2": _contrast(Z6, S3, signs=(1, 1)),
    "A3": _locality,
}

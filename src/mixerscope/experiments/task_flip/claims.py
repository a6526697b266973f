"""The published sentences, each with the test that the study gives it: supported, contradicted, open or untestable.

What would contradict a sentence stands in `claims.json`, most of it from before anything was run; docs/state-study.md
lists what was changed when results were known. Intervals are over seeds, drawn again within each cell; where too few
seeds learned a task nothing is said of it.
"""

import json
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mixerscope.analysis.prediction import share_of_draws
from mixerscope.analysis.quantiles import exact_interval
from mixerscope.analysis.readability import grouping, profile, shapes_under_other_rules
from mixerscope.experiments.task_flip.claims_erasure import (
    SINGLE,
    available_not_needed,
    boundaries,
    necessary,
    necessary_longer,
    refitted_elsewhere,
)
from mixerscope.experiments.task_flip.claims_pretrained import bottleneck, not_by_a_direction, tuned_flip
from mixerscope.experiments.task_flip.evidence import (
    DRAWS,
    Cells,
    apart_of,
    convolution_grouping,
    flip_of,
    grouping_of,
)
from mixerscope.experiments.task_flip.found import (
    LEAST_SEEDS,
    Found,
    Outcome,
    above,
    decided_at,
    untestable,
    wholly_above,
)
from mixerscope.experiments.task_flip.models import FOUR, HOLDS, Cell, Model
from mixerscope.experiments.task_flip.pretrained import Tuned
from mixerscope.experiments.task_flip.study import (
    AFTER_CLOSE,
    BRACKETS,
    MAIN,
    PARITY,
    RECURRENT,
    RESETS,
    S3,
    SIGNED,
    TRANSFORMER,
    Z6,
)

JUMP = 0.5
TAIL = 0.025
"""Of draws of seeds; where more of them support a sentence, and more contradict it, it is open."""
MAMBA = "Mamba"
CONVOLVED = (MAMBA, "Mamba-2")
LEAST_ARCHITECTURES = 3
"""That a sentence about what counts, whatever the architecture, is tested on."""


@dataclass(frozen=True)
class Claim:
    """One sentence, in our words."""

    id: str
    version: str
    sentence: str
    contradicted: str
    """What would contradict it."""
    number: str
    """What its test measures."""


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
    shapes = {name: [profile(curve).shape for curve in curves] for name, curves in known.items()}
    others = _not_late(shapes)
    if len(others) < 2 <= len(others) + len(RECURRENT) - len(known):
        # Those that are not known could make it two.
        return untestable(f"{len(known)} of {len(RECURRENT)} architectures learned parity with {LEAST_SEEDS} seeds")
    every = [shape for own in shapes.values() for shape in own]
    low, high = exact_interval(every.count("late"), len(every))
    said = "; ".join(f"{name} {_counted(own)}" for name, own in shapes.items())
    effect = f"{every.count('late')} of {len(every)} late: {said}"
    effect = f"{effect}; {_moved([curve for curves in known.values() for curve in curves])}"
    # A row an architecture, of curves, of the names that other thresholds give them.
    moved = {name: [shapes_under_other_rules(curve) for curve in curves] for name, curves in known.items()}
    rules = [dict(zip(moved, names, strict=True)) for names in zip(*(zip(*own, strict=True) for own in moved.values()))]
    against = sum(len(_not_late(by_rule)) >= 2 for by_rule in rules)
    effect = f"{effect}; contradicted by {against} of {len(rules)} other sets of these"
    outcome: Outcome = "contradicted" if len(others) >= 2 else "supported"
    found = Found(outcome, effect, every.count("late") / len(every), low, high, min(map(len, known.values())))
    share = share_of_draws(shapes, lambda of: len(_not_late(of)) < 2, DRAWS)
    effect = f"{effect}; other seeds would support it in {share:.3f} of draws"
    return replace(found, outcome="open" if TAIL < share < 1 - TAIL else outcome, effect=effect)


def _not_late(shapes: Mapping[str, Sequence[str]]) -> list[str]:
    """Architectures of which no more than half of the curves are late."""
    return [name for name, own in shapes.items() if own.count("late") / len(own) <= 0.5]


def _moved(curves: Sequence[Sequence[float]]) -> str:
    moved = [len({profile(curve).shape, *shapes_under_other_rules(curve)}) > 1 for curve in curves]
    return f"the name of {sum(moved)} of {len(moved)} curves moves with its thresholds"


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
    value, shapes = statistics.median(jumps), _counted([one.shape for one in profiles])
    effect = f"largest step {value:.2f} of the gain; {shapes}; {_moved(curves)}"
    outcome: Outcome = "supported" if value < JUMP else "contradicted"
    return decided_at(JUMP, Found(outcome, effect, value, low, high, len(curves)))


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
    hard = replace(cells, hard=True)
    ends = hard.interval(names, lambda of: flip_of(of, others))
    beside = f"where the last token does not tell {_signed(flip_of(hard, others))} ({_interval(*ends)})"
    found = wholly_above(f"flip {value:+.2f}: {single}; {beside}", value, low, high, cells.fewest(names))
    # Brackets that were opened last are read off the last token: without them it must be seen too.
    masked = found.outcome == "supported" and (ends[0] is None or ends[0] <= 0)
    return replace(found, outcome="contradicted") if masked else found


def _interval(low: float | None, high: float | None) -> str:
    return "no interval" if low is None or high is None else f"{low:+.2f} to {high:+.2f}"


def _signed(value: float | None) -> str:
    return "none" if value is None else f"{value:+.2f}"


def _grouping(cells: Cells) -> Found:
    known = [name for name in MAIN if _grouped(cells, S3, name)]
    single = {name: grouping_of(cells, S3, [name]) or 0.0 for name in known}
    if len(known) < len(MAIN) and not any(value <= 0 for value in single.values()):
        lacks = [name for name in MAIN if name not in known]
        return untestable(f"too few seeds learned all three tasks: {', '.join(lacks)}")
    names = [(task, name) for task in (PARITY, BRACKETS, S3) for name in known]

    def weakest(of: Cells) -> float:
        return min(grouping_of(of, S3, [name]) or 0.0 for name in known)

    low, high = cells.interval(names, weakest)
    nearer = {name: grouping_of(cells, S3, [name], grouping) for name in known}
    hard = weakest(replace(cells, hard=True))
    effect = f"nearer parity than brackets, and nearer it than brackets are: {_each(single)}"
    effect = f"{effect}; where the last token does not tell {hard:+.2f} at least"
    effect = f"{effect}; the first alone, which S3 has wherever its curve lies beyond that of parity: {_each(nearer)}"
    found = above(effect, min(single.values()), low, high, cells.fewest(names))
    # Brackets that were opened last are read off the last token: without them it must hold too.
    return replace(found, outcome="contradicted") if found.outcome == "supported" and hard <= 0 else found


def _each(values: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {_signed(value)}" for name, value in values.items())


def _grouped(cells: Cells, task: str, name: str) -> bool:
    return cells.fewest([(each, name) for each in (PARITY, BRACKETS, task)]) >= LEAST_SEEDS


def _through_convolutions(cells: Cells) -> Found:
    known = [
        name
        for name in CONVOLVED
        if min(sum(bool(model.taps) for model in cells.of(task, name)) for task in (S3, PARITY, BRACKETS))
        >= LEAST_SEEDS
    ]
    value = convolution_grouping(cells, known, _taps)
    if value is None:
        return untestable(f"what runs through the convolutions was not measured: {_taps_lacking(cells)}")
    names = [(task, name) for task in (S3, PARITY, BRACKETS) for name in known]
    low, high = cells.interval(names, lambda of: convolution_grouping(of, known, _taps))
    back = convolution_grouping(cells, known, lambda model: model.convolved)
    effect = f"grouping by damage without taps {value:+.2f}, in {' and '.join(known)}"
    effect = f"{effect}; by what their output brings back, {_signed(back)}"
    return above(effect, value, low, high, min(len(cells.of(*name)) for name in names))


def _taps(model: Model) -> list[float]:
    return model.taps


def _taps_lacking(cells: Cells) -> str:
    """Of which task, with how many seeds where there should be three, in each architecture that has convolutions."""
    lacks: list[str] = []
    for name in CONVOLVED:
        seeds = {task: sum(bool(model.taps) for model in cells.of(task, name)) for task in (PARITY, BRACKETS, S3)}
        few = ", ".join(f"{task} in {count} seeds" for task, count in seeds.items() if count < LEAST_SEEDS)
        lacks.append(f"{name} {few}")
    return "; ".join(lacks)


def _too_few(known: Sequence[str], tasks: Sequence[str]) -> str:
    learned = f"learned all of {', '.join(tasks)} with {LEAST_SEEDS} seeds"
    if not known:
        return f"no architecture {learned}"
    return f"only {', '.join(known)} {learned}, and {LEAST_ARCHITECTURES} architectures should have"


def _contrast(*tasks: str, signs: Sequence[int]) -> Callable[[Cells], Found]:
    """Whether each task goes with parity (sign 1) or with brackets (sign -1), over the architectures that learned."""

    def test(cells: Cells) -> Found:
        known = [name for name in MAIN if all(_grouped(cells, task, name) for task in tasks)]
        if len(known) < LEAST_ARCHITECTURES:
            return untestable(_too_few(known, (*tasks, PARITY, BRACKETS)))
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
    known = [name for name in MAIN if cells.fewest([(task, name) for task in every]) >= LEAST_SEEDS]
    if len(known) < LEAST_ARCHITECTURES:
        return untestable(_too_few(known, every))

    def moves(of: Cells) -> tuple[float, float]:
        """How much nearer brackets the curve of S3 comes by resets, and parity that of brackets by closing. Not by the
        grouping: by the triangle no curve has less of it than brackets, so that whatever becomes of these would have
        moved towards parity."""
        towards_brackets = apart_of(of, S3, BRACKETS, known) - apart_of(of, RESETS, BRACKETS, known)
        towards_parity = apart_of(of, BRACKETS, PARITY, known) - apart_of(of, AFTER_CLOSE, PARITY, known)
        return towards_brackets, towards_parity

    names = [(task, name) for task in every for name in known]
    first, second = moves(cells)
    low, high = cells.interval(names, lambda of: min(moves(of)))
    effect = f"resets bring S3 {first:+.2f} nearer brackets, closing brings brackets {second:+.2f} nearer parity"
    return above(effect, min(first, second), low, high, cells.fewest(names))


def _signs_extrapolate(cells: Cells) -> Found:
    """Whether Mamba's transitions need a sign: with it, parity holds in documents four times as long."""
    names = [(PARITY, SIGNED), (PARITY, MAMBA)]

    known = {name: [model for model in cells.of(*name) if FOUR in model.last] for name in names}
    if min(map(len, known.values())) < LEAST_SEEDS:
        few = ", ".join(f"{len(own)} seeds of {name}" for (_, name), own in known.items())
        return untestable(f"parity was learned, and asked in documents {FOUR} times as long, by {few}")

    def beyond(of: Mapping[tuple[str, str], Sequence[Model]]) -> list[float]:
        return [statistics.fmean(model.beyond_guessing(FOUR) for model in own) for own in of.values()]

    signed, usual = beyond(known)
    low, high = cells.interval_of(known, lambda of: operator.sub(*beyond(of)))
    alone, most = cells.interval_of({names[0]: known[names[0]]}, lambda of: beyond(of)[0])
    ends = alone, None if most is None else min(most, 1.0)  # stretched for few seeds it may reach beyond all of them
    hold = ", ".join(f"{sum(bool(one.holds()) for one in own)} of {len(own)} hold" for own in known.values())
    verdicts = _counted([model.verdict or "none" for model in known[names[0]]])
    effect = f"last answers beyond guessing {signed:.2f} signed ({_interval(*ends)}), {usual:.2f} as it is ({hold})"
    effect = f"{effect}; signed {verdicts}"
    found = above(effect, signed - usual, low, high, min(map(len, known.values())))
    # More than without a sign is not yet enough to hold.
    held = above(effect, signed, *ends, found.seeds, HOLDS)
    return held if found.outcome == "supported" or held.outcome == "contradicted" else found


TESTS: dict[str, Callable[[Cells], Found]] = {
    "C1": _late_on_parity,
    "C2": _gradual_on_parity,
    "C3": _flip,
    "C4": tuned_flip,
    "C5": _grouping,
    "C6a": necessary(SINGLE),
    "C6b": refitted_elsewhere(necessary(None)),
    "C7": refitted_elsewhere(necessary_longer),
    "C8": bottleneck,
    "C9": refitted_elsewhere(boundaries),
    "C10": not_by_a_direction,
    "C11": _through_convolutions,
    "C12": available_not_needed,
    "A1": _contrast(Z6, S3, signs=(1, -1)),
    "A2": _contrast(Z6, S3, signs=(1, 1)),
    "A3": _locality,
    "A4": _signs_extrapolate,
}

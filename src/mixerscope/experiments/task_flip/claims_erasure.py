"""Tests of the sentences about what erasing does: whether what can be read is necessary, and where it is missed."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mixerscope.analysis.quantiles import exact_interval
from mixerscope.experiments.task_flip.claims_pretrained import tuned_elsewhere
from mixerscope.experiments.task_flip.evidence import (
    LAYERS,
    LEAST_DAMAGE,
    RANK,
    Cells,
    compared_boundaries,
    damages,
    inner,
    missed,
    rank_agreement,
    refitted_damages,
    where_it_reads_best,
)
from mixerscope.experiments.task_flip.found import LEAST_SEEDS, Found, Outcome, above, decided_at, untestable
from mixerscope.experiments.task_flip.models import TWO, Cell, Model
from mixerscope.experiments.task_flip.study import BRACKETS, MAIN, PARITY, S3

ALIKE = 0.8
SINGLE, LEACE, ITERATED = "single direction", "leace", "iterated projection"
Numbers = dict[Cell, list[float]]
"""A number a model, of cells with enough of them."""


def _of_cells(cells: Cells, tasks: Sequence[str], of: Callable[[Sequence[Model]], list[float]]) -> Numbers:
    found = {key: of(models) for key, models in _claimed(cells).items() if key[0] in tasks}
    return {key: values for key, values in found.items() if len(values) >= LEAST_SEEDS}


def _mean_of_cells(numbers: Mapping[Cell, Sequence[float]]) -> float:
    return statistics.fmean(statistics.fmean(values) for values in numbers.values())


def _in_cells(numbers: Numbers, asked: int) -> str:
    """How large, in how many models, and for each task."""
    by_task = {task: {key: own for key, own in numbers.items() if key[0] == task} for task, _, _ in numbers}
    each = ", ".join(f"{task} {_mean_of_cells(own):+.2f}" for task, own in by_task.items())
    count = sum(map(len, numbers.values()))
    return f"{_mean_of_cells(numbers):.2f} in {count} of {asked} models, {len(numbers)} cells ({each})"


def _asked(cells: Cells, tasks: Sequence[str]) -> int:
    return sum(len(models) for key, models in _claimed(cells).items() if key[0] in tasks)


def _claimed(cells: Cells) -> dict[Cell, Sequence[Model]]:
    """Those that the sentences are about: four blocks, and no controls, of which nobody said anything."""
    return {key: models for key, models in cells.models.items() if key[1] in MAIN and key[2] == LAYERS}


def refitted_elsewhere(test: Callable[[Cells], Found]) -> Callable[[Cells], Found]:
    """A test of what a refit confirms. Where none does, because nobody looked in other documents than those in which
    erasures were found, what these alone say stands beside, and decides nothing: in them LEACE leaves a linear probe
    nothing whatever it leaves elsewhere."""

    def asked(cells: Cells) -> Found:
        found = test(cells)
        there = {
            key: [replace(one, erasures=[own.by_its_own_documents() for own in one.erasures]) for one in models]
            for key, models in cells.models.items()
        }
        alone = test(replace(cells, models=there))
        if found.outcome != "untestable" or alone.outcome == "untestable":
            return found
        why = "what erasures leave in other documents than those in which they were found was read nowhere, or is not"
        return untestable(f"{why} nothing; by those alone, which is no test: {alone.effect}")

    return asked


def necessary(method: str | None) -> Callable[[Cells], Found]:
    """Damage at the inner boundary that reads best; with a method alone as it is, else at the best of those where a
    refit says that nothing is left, and beyond that of random subspaces."""

    def test(cells: Cells) -> Found:
        tasks = (PARITY, BRACKETS, S3)
        numbers, asked = _of_cells(cells, tasks, lambda models: damages(models, method)), _asked(cells, tasks)
        if not numbers:
            why = "nothing could be erased, or a fresh probe still reads"
            return untestable(f"{why}, in all but a few of {asked} models")
        low, high = Cells.interval_of(numbers, _mean_of_cells)
        there = [one for key in numbers for one in where_it_reads_best(cells.models[key], method)] if method else []
        rest = ""
        if there:
            rest = f", a fresh probe still reads {statistics.median(one.residual for one in there):.2f}"
        taken = [one.variance for one in there if one.variance is not None]
        if taken:
            rest = f"{rest}; it takes {statistics.median(taken):.4f} of the variance"
        if method is None:
            took = {way: _took(cells, tasks, way) for way in (LEACE, ITERATED)}
            rest = f"; nothing is left to read by LEACE in {took[LEACE]}, by {ITERATED} in {took[ITERATED]} models"
            rest = f"{_where(cells, numbers)}{rest}"
            by_rank = _of_cells(cells, tasks, lambda models: damages(models, None, controls=RANK))
            if by_rank:
                rest = f"{rest}; beyond random subspaces of its rank, which take less, {_mean_of_cells(by_rank):+.2f}"
        effect = f"damage {_in_cells(numbers, asked)}{rest}"
        return above(effect, _mean_of_cells(numbers), low, high, min(map(len, numbers.values())), LEAST_DAMAGE)

    return test


def _where(cells: Cells, numbers: Numbers) -> str:
    """How well the answer can be read where it was erased, and what erasing costs where that is best."""
    there = [one for key in numbers for one in missed(cells.models[key], None)]
    read = [one.readability for one in there if one.readability is not None]
    best = [one.damage for one in there if one.best]
    said = f", where readability is {statistics.median(read):.2f}" if read else ""
    costs = f", with {statistics.fmean(best):.2f}" if best else ""
    return f"{said}; in {len(best)} no inner boundary reads more{costs}"


def _took(cells: Cells, tasks: Sequence[str], way: str) -> int:
    """Of how many models a way of erasing takes the label at some inner boundary, as a refit says."""
    models = [model for key, own in _claimed(cells).items() if key[0] in tasks for model in own]
    return sum(any(one.speaks for one in inner(model, way)) for model in models)


def necessary_longer(cells: Cells) -> Found:
    """The same in longer documents: by what was found there, beside what was found at the training length. Of models
    that hold there: half of the positions are those of training, so that one which knows nothing of the others is still
    far from guessing on the whole."""
    tasks = (PARITY, BRACKETS)
    whole = _asked(cells, tasks)
    holding = {key: [one for one in models if one.holds(TWO)] for key, models in cells.models.items()}
    cells = replace(cells, models=holding)
    numbers, asked = _of_cells(cells, tasks, refitted_damages), _asked(cells, tasks)
    kept = _of_cells(cells, tasks, lambda models: damages(models, None, longer=True))
    single = _of_cells(cells, tasks, lambda models: damages(models, SINGLE, longer=True))
    said = {
        "erasures of the training length that take it there too": kept,
        "one direction, no refit": single,
    }
    beside = "; ".join(f"by {how} {_in_cells(own, asked) if own else 'in no cell'}" for how, own in said.items())
    if not numbers:
        why = "nothing can be read there, or compared, in all but a few"
        return untestable(f"{asked} of {whole} models hold there; {why} of these; {beside}")
    alike = [
        one.alike
        for key in numbers
        for model in cells.models[key]
        for one in inner(model, LEACE)
        if one.alike is not None and one.refitted is not None
    ]
    low, high = Cells.interval_of(numbers, _mean_of_cells)
    effect = f"damage by what is found there {_in_cells(numbers, asked)} that hold there, of {whole}"
    as_it_is = _of_cells(cells, tasks, lambda models: refitted_damages(models, beyond=False))
    effect = f"{effect}, with no random subspaces to be held against {_mean_of_cells(as_it_is):.2f}; {beside}"
    if alike:
        effect = f"{effect}; what probes read is alike in {statistics.median(alike):.2f}"
    return above(effect, _mean_of_cells(numbers), low, high, min(map(len, numbers.values())), LEAST_DAMAGE)


def boundaries(cells: Cells) -> Found:
    told = {key: compared_boundaries(models) for key, models in _claimed(cells).items()}
    told = {key: values for key, values in told.items() if values}
    compared = [value for values in told.values() for value in values]
    every = [one.differ for one in compared]
    if len(every) < LEAST_SEEDS:
        return untestable("in no three models could both boundaries be told; " + tuned_elsewhere(cells))
    share = sum(every) / len(every)
    low, high = exact_interval(sum(every), len(every))
    by_one = [one.differ for models in _claimed(cells).values() for one in compared_boundaries(models, SINGLE)]
    effect = f"another inner boundary in {sum(every)} of {len(every)} four-layer models, refitted"
    # Two that are drawn blindly are not the same one in half of the cases where there are two, in two thirds of three.
    chance = statistics.fmean(1 - 1 / one.among for one in compared)
    named = [one.differ for (task, _, _), own in told.items() if task in (PARITY, BRACKETS, S3) for one in own]
    effect = f"{effect}, where by chance alone {chance:.2f} of them would have another one"
    effect = f"{effect}; on {PARITY}, {BRACKETS} and {S3} in {sum(named)} of {len(named)}"
    effect = f"{effect}; by one direction in {sum(by_one)} of {len(by_one)} that it hurts; {tuned_elsewhere(cells)}"
    outcome: Outcome = "supported" if share > 0.5 else "contradicted"
    return decided_at(0.5, Found(outcome, effect, share, low, high, min(map(len, told.values()))))


def available_not_needed(cells: Cells) -> Found:
    tasks = {key[0] for key in cells.models}
    by_cell, by_iterated, by_one = (
        _of_cells(cells, [*tasks], lambda models, way=way: rank_agreement(models, way))
        for way in (LEACE, ITERATED, SINGLE)
    )
    if not by_cell:
        return untestable("in no cell do three seeds have both curves")
    medians = {key: statistics.median(values) for key, values in by_cell.items()}
    above = [key for key, value in medians.items() if value > ALIKE]
    value = statistics.median(medians.values())
    low, high = Cells.interval_of(
        by_cell, lambda of: statistics.median(statistics.median(values) for values in of.values())
    )
    effect = f"rank correlation {value:.2f}, above {ALIKE} in {len(above)} of {len(medians)} cells"
    took = _of_cells(cells, [*tasks], lambda models: rank_agreement(models, LEACE, refitted=True))
    if took:
        each = [statistics.median(values) for values in took.values()]
        high_there = sum(own > ALIKE for own in each)
        effect = f"{effect}, where a refit says that it took the state {statistics.median(each):.2f}, above {ALIKE} in"
        effect = f"{effect} {high_there} of {len(each)}"
    for how, others in ((ITERATED, by_iterated), ("one direction, no refit", by_one)):
        if others:
            other = statistics.median(statistics.median(values) for values in others.values())
            effect = f"{effect}; by {how} {other:.2f}"
    outcome: Outcome = "contradicted" if len(above) == len(medians) else "supported"
    return Found(outcome, effect, value, low, high, min(map(len, by_cell.values())))

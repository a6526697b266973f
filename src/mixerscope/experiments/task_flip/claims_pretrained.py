"""Tests of the sentences about pretrained models, fine-tuned on the tasks, beside the same from random weights."""

import statistics
from collections.abc import Mapping, Sequence

from mixerscope.analysis.quantiles import exact_interval
from mixerscope.analysis.readability import flip
from mixerscope.experiments.finetune.results import RANDOM
from mixerscope.experiments.task_flip.evidence import Cells
from mixerscope.experiments.task_flip.found import LEAST_SEEDS, Found, untestable, wholly_above
from mixerscope.experiments.task_flip.pretrained import Tuned, mean_lateness, of_shape
from mixerscope.experiments.task_flip.study import BRACKETS, PARITY, S3

UNAVAILABLE = "pretrained weights were not at hand"
BREAKS = 0.5
"""Share of what a model knows beyond guessing: an erasure that costs more breaks the task."""
RECOVERS = 0.9
SMALL, LARGE, RECURRENT = "Pythia-160M", "Pythia-410M", "Mamba-130M"
Name = tuple[str, str]


def _few(known: Mapping[Name, Sequence[Tuned]]) -> Found | None:
    """What is said where some task has too few seeds."""
    if not any(known.values()):
        return untestable(UNAVAILABLE)
    few = [f"{shape} {task} {len(own)}" for (shape, task), own in known.items() if len(own) < LEAST_SEEDS]
    return untestable(f"fewer than {LEAST_SEEDS} fine-tuned seeds learned: {', '.join(few)}") if few else None


def tuned_flip(cells: Cells) -> Found:
    names = [(shape, task) for shape in (RECURRENT, SMALL) for task in (PARITY, BRACKETS)]
    known = {name: of_shape(cells.tuned, *name) for name in names}
    few = _few(known)
    if few is not None:
        return few

    def value(of: Mapping[Name, Sequence[Tuned]]) -> float | None:
        late = {name: mean_lateness(own) for name, own in of.items()}
        if None in late.values():
            return None
        recurrent, attention = ((late[shape, PARITY], late[shape, BRACKETS]) for shape in (RECURRENT, SMALL))
        return flip(recurrent, attention)  # type: ignore[arg-type]

    found = value(known)
    if found is None:
        return untestable("some curve never rises")
    low, high = cells.interval_of(known, value)
    untrained = {name: of_shape(cells.tuned, *name, RANDOM) for name in names}
    beside = value(untrained) if all(untrained.values()) else None
    said = "from random weights nothing was learned" if beside is None else f"from random weights {beside:+.2f}"
    return wholly_above(f"flip {found:+.2f}; {said}", found, low, high, min(map(len, known.values())))


def bottleneck(cells: Cells) -> Found:
    known = {(SMALL, BRACKETS): of_shape(cells.tuned, SMALL, BRACKETS)}
    few = _few(known)
    if few is not None:
        return few
    models = [one for one in known[SMALL, BRACKETS] if one.peak("single_damage") is not None]
    if len(models) < LEAST_SEEDS:
        return untestable("erasing a direction hurts nowhere", len(models))
    peaks = [(one, one.peak("single_damage") or 0) for one in models]
    inside = [1 / 3 <= at / one.layers <= 2 / 3 for one, at in peaks]
    depth = statistics.median(at / one.layers for one, at in peaks)
    worst = [one.rows[at] for one, at in peaks]
    damage = statistics.fmean(row["single_damage"] for row in worst)
    points = statistics.fmean(row["clean"] - row["single_accuracy"] for row in worst)
    low, high = exact_interval(sum(inside), len(inside))
    effect = f"most damage at {depth:.2f} of the depth: {damage:.2f} of what is known, {100 * points:.0f} points"
    effect += f"; {_until_nothing_is_read(models)}"
    larger = of_shape(cells.tuned, LARGE, BRACKETS)
    if larger:
        wide = [sum(value >= BREAKS for value in one.column("single_damage") or ()) for one in larger]
        effect += f"; {LARGE}: {statistics.median(wide):.0f} of {larger[0].layers + 1} boundaries break the task"
    share = sum(inside) / len(inside)
    return Found("supported" if share > 0.5 else "contradicted", effect, share, low, high, len(models))


def not_by_a_direction(cells: Cells) -> Found:
    known = {(RECURRENT, task): of_shape(cells.tuned, RECURRENT, task) for task in (PARITY, BRACKETS, S3)}
    few = _few(known)
    if few is not None:
        return few
    ends: dict[Name, list[tuple[float, float]]] = {}
    for name, models in known.items():
        single, back = ([one.column(column) for one in models] for column in ("single_damage", "recovered"))
        # Behind the last block a patch brings everything back by construction, so the boundary before it is asked.
        ends[name] = [(a[-1], b[-2]) for a, b in zip(single, back, strict=True) if a is not None and b is not None]
    if min(map(len, ends.values())) < LEAST_SEEDS:
        return untestable("damage and recovery were not measured in three seeds of each task")
    damage = max(statistics.fmean(one for one, _ in own) for own in ends.values())
    least = min(statistics.fmean(one for _, one in own) for own in ends.values())
    low, high = cells.interval_of(ends, lambda of: min(statistics.fmean(one for _, one in own) for own in of.values()))
    effect = f"one direction costs {damage:.2f} at most; a patch before the last block brings back {least:.2f} at least"
    effect += f"; {_until_nothing_is_read([one for models in known.values() for one in models])}"
    good = damage < BREAKS and least >= RECOVERS
    return Found("supported" if good else "contradicted", effect, least, low, high, min(map(len, ends.values())))


def _until_nothing_is_read(models: Sequence[Tuned]) -> str:
    """Beside one direction: what the worst erasure costs, of those after which a fresh probe reads nothing."""
    most = [max(found.values()) for one in models if (found := one.refitted())]
    if not most:
        return "erased until a fresh probe reads nothing: nowhere"
    return (
        f"erased until a fresh probe reads nothing {statistics.fmean(most):.2f}, in {len(most)} of {len(models)} models"
    )


def tuned_elsewhere(cells: Cells) -> str:
    """Whether fine-tuned models, too, read best at another inner boundary than where erasing hurts most, of those that
    an erasure took the state from."""
    told: list[bool] = []
    for one in cells.tuned:
        damages = one.refitted() if one.passed and one.weights != RANDOM else {}
        read = {at: one.rows[at]["readability"] for at in damages}
        if len(damages) > 1 and None not in read.values():
            told.append(max(read, key=lambda at: read[at]) != max(damages, key=lambda at: damages[at]))
    if told:
        return f"another one in {sum(told)} of {len(told)} fine-tuned models"
    return "of no fine-tuned model both could be told" if cells.tuned else UNAVAILABLE

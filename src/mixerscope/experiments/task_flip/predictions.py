"""What a verdict at the training length foretells of documents four times as long, beside what else could foretell it.

Over all models that passed the gate, whatever their rate. A model holds where its last answer in the longer documents
is nearer right than guessed. Verdicts are ordered: carried, undetermined, all others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mixerscope.analysis.prediction import Area, area, left_out_means, left_out_sums
from mixerscope.experiments.task_flip.models import FOUR, Model

CARRIED, UNDETERMINED, RECOMPUTED = "carried", "undetermined", "recomputed"
VERDICT = "verdict"
ACCURACY, READABILITY, BOTH = "accuracy at the training length", "readability", "architecture and task"


@dataclass(frozen=True)
class Predicted:
    """How well one thing foretells the outcome."""

    by: str
    overall: Area | None
    within: Area | None
    """Over pairs of models of one architecture."""
    inside: Area | None
    """Over pairs of one cohort, which differ in rate and seed alone: nothing but the model itself can tell these."""
    models: int


def verdict_score(model: Model) -> float:
    return {CARRIED: 1.0, UNDETERMINED: 0.5}.get(model.verdict or UNDETERMINED, 0.0)


def best_read(model: Model) -> float | None:
    """Readability at the boundary that reads best; None where it could not be measured."""
    return None if model.curve is None else max(model.curve)


def _test(model: Model, name: str) -> float | None:
    """One test of the verdict; None where it was not measured."""
    return model.tests.get(name)


PREDICTORS: dict[str, Callable[[Model], float | None]] = {
    VERDICT: verdict_score,
    "verdict, runs with every stage": lambda model: verdict_score(model) if model.whole else None,
    ACCURACY: lambda model: model.accuracy[1],
    READABILITY: best_read,
    "later answers, state written": lambda model: _test(model, "later, shift"),
    "later answers, as held earlier": lambda model: _test(model, "later, as held earlier"),
    "later answers, learned directions": lambda model: _test(model, "later, learned"),
}
"""The rules were settled with older runs in view, which lack a stage: those with every stage, but for Transformers, are
the test of them. The
last three are parts of the verdict, shown whatever they give."""


def asked(models: Sequence[Model]) -> list[Model]:
    """Those that passed the gate, and were measured in longer documents."""
    return [model for model in models if model.passed and model.holds(FOUR) is not None and model.verdict is not None]


def predictions(models: Sequence[Model]) -> list[Predicted]:
    """Every predictor, the verdict first; architecture and task, alone and together, by what became of other cohorts of
    theirs: a cohort that holds is then foretold by those of its kind that do not, which counts against them."""
    known = asked(models)
    good = [bool(model.holds(FOUR)) for model in known]
    cohorts = [model.cohort for model in known]
    tasks, architectures = [model.cell[0] for model in known], [model.cell[1] for model in known]
    scores: dict[str, Sequence[float | None]] = {
        name: [of(model) for model in known] for name, of in PREDICTORS.items()
    }
    for name, groups in (("architecture alone", architectures), ("task alone", tasks)):
        scores[name] = left_out_means([float(one) for one in good], groups, cohorts)
    scores[BOTH] = left_out_sums([float(one) for one in good], (architectures, tasks), cohorts)
    found: list[Predicted] = []
    for name, values in scores.items():
        told = {i: value for i, value in enumerate(values) if value is not None}
        own = [*told.values()], [good[i] for i in told], [cohorts[i] for i in told]
        within = area(*own, within=[architectures[i] for i in told])
        found.append(Predicted(name, area(*own), within, area(*own, within=own[2]), len(told)))
    return found


@dataclass(frozen=True)
class Foreseen:
    """A sentence that was written down before the first of the held-out models was trained, and what came of it."""

    id: str
    sentence: str
    came: str
    true: bool | None
    """None where nothing could have refuted it."""


LEAST_AREA, LEAST_CARRIED, MOST_RECOMPUTED = 0.9, 0.9, 0.1


def foreseen(models: Sequence[Model]) -> list[Foreseen]:
    """Of models that are held out."""
    areas = {one.by: one.overall for one in predictions(models)}
    verdict, named = areas[VERDICT], by_verdict(models)

    def more_than(*others: str) -> tuple[str, bool | None]:
        known = {name: found for name in others if (found := areas[name]) is not None}
        came = ", ".join(f"{name} {found.value:.2f}" for name, found in known.items())
        if verdict is None or len(known) < len(others):
            return came or "nothing to compare", None
        return came, all(verdict.value > found.value for found in known.values())

    def hold(name: str) -> tuple[str, float | None]:
        count, held = named.get(name, (0, 0))
        return f"{held} of {count} {name}", held / count if count else None

    (carried, most), (recomputed, least) = hold(CARRIED), hold(RECOMPUTED)
    parts = [most >= LEAST_CARRIED] if most is not None else []
    parts += [least <= MOST_RECOMPUTED] if least is not None else []
    told = "nothing to compare" if verdict is None else f"{verdict.value:.2f}"
    return [
        Foreseen("H1", "The area of the verdict is at least 0.90.", told, verdict and verdict.value >= LEAST_AREA),
        Foreseen("H2", "It is larger than those of accuracy and readability.", *more_than(ACCURACY, READABILITY)),
        Foreseen("H3", "It is larger than that of architecture and task together.", *more_than(BOTH)),
        Foreseen(
            "H4",
            "Of carried models nine in ten hold at least, of recomputed ones one in ten at most.",
            f"{carried}, {recomputed}",
            all(parts) if parts else None,
        ),
    ]


def by_verdict(models: Sequence[Model]) -> dict[str, tuple[int, int]]:
    """Verdict to how many models have it, and how many of these hold."""
    found: dict[str, tuple[int, int]] = {}
    for model in asked(models):
        count, held = found.get(model.verdict or UNDETERMINED, (0, 0))
        found[model.verdict or UNDETERMINED] = count + 1, held + bool(model.holds(FOUR))
    return found

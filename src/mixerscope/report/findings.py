"""What was found, as sentences. Each is derived from the verdicts; none is written in advance."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mixerscope.analysis.rules import NOT_LEARNED, NOT_RETRIEVAL, OTHER
from mixerscope.report.data import DIVERGED, UNJUDGED, UNPATCHED, ModelResult, TaskGroup
from mixerscope.report.numbers import percent

SAME_ACCURACY = 0.05
"""Models whose accuracies lie within this of each other are said to have the same accuracy."""
UNNAMED = "a route that has no name yet"
"""What 'other' means; mechanisms with a name are explained by their task."""
NAMED_AT_MOST = 4
"""Models that a sentence lists by name; more are counted by architecture."""


@dataclass(frozen=True)
class Finding:
    headline: str
    details: tuple[str, ...]


def finding(group: TaskGroup) -> Finding:
    """The headline of one task and the sentences that carry it."""
    by_route: dict[tuple[str, tuple[str, ...]], list[ModelResult]] = defaultdict(list)
    unnamed: dict[str, list[ModelResult]] = defaultdict(list)
    for model in group.models:
        if model.verdict and model.verdict.route:
            by_route[model.mechanism, model.verdict.route].append(model)
        else:
            unnamed[model.mechanism].append(model)
    details = [
        f"{_names(models)}: {' → '.join(route)} ({': '.join(filter(None, [mechanism, gloss(models[0], mechanism)]))})."
        for (mechanism, route), models in by_route.items()
    ]
    named = [model for models in by_route.values() for model in models]
    if accuracies := _accuracies(named):
        details.append(f"Accuracy on fresh documents: {_span(accuracies)}.")
    details += [f"{_names(models)}: {mechanism}{_how_well(models)}." for mechanism, models in unnamed.items()]
    if any(len({v.mechanism for v in model.verdicts}) > 1 for model in group.models):
        details.append("Corrupting another slot gives another verdict; see the cards.")
    return Finding(_headline(list(by_route), named, unnamed), tuple(details))


def page_headline(groups: Sequence[TaskGroup]) -> Finding:
    """The headline of the page: that of its one task, or a count where there are several."""
    if len(groups) == 1:
        return finding(groups[0])
    models = sum(len(group.models) for group in groups)
    details = tuple(f"Task {i + 1}, {group.name}: {finding(group).headline}." for i, group in enumerate(groups))
    return Finding(f"{models} models on {len(groups)} tasks", details)


def _headline(
    routes: list[tuple[str, tuple[str, ...]]], named: list[ModelResult], unnamed: dict[str, list[ModelResult]]
) -> str:
    if not named:
        if set(unnamed) == {NOT_LEARNED} and len(unnamed[NOT_LEARNED]) == 1:
            return "Not learned"
        if NOT_LEARNED in unnamed and set(unnamed) <= {NOT_LEARNED, DIVERGED}:
            return "No model learned the task"
        if set(unnamed) == {NOT_RETRIEVAL}:
            return "Solved without retrieval"
        if set(unnamed) == {DIVERGED}:
            return "Training diverged"
        if set(unnamed) == {UNPATCHED}:
            return "The model cannot be patched" if len(unnamed[UNPATCHED]) == 1 else "No model can be patched"
        if set(unnamed) == {UNJUDGED}:
            return "Trained and not judged"
        return "No mechanism could be named"
    if len(routes) > 1:
        return (
            "Same accuracy, different mechanism"
            if _same_accuracy(named)
            else "Different mechanisms, different accuracy"
        )
    mechanism = routes[0][0] if _kind(routes[0][0]) != OTHER else "an unnamed route"
    if len(named) == 1:
        return f"{named[0].label} learned {mechanism}"
    what = f"Same mechanism in {'both' if len(named) == 2 else f'all {len(named)}'} models"
    if unnamed:
        what = f"Same mechanism in the {len(named)} models that could be judged"
    return f"{what}: {mechanism}"


def gloss(model: ModelResult, mechanism: str) -> str:
    """A mechanism in plain words; empty where the task has none for it."""
    return UNNAMED if _kind(mechanism) == OTHER else model.glosses.get(mechanism, "")


def _kind(mechanism: str) -> str:
    """`other: offset +3` is an 'other'."""
    return mechanism.split(":")[0]


def _accuracies(models: Sequence[ModelResult]) -> list[float]:
    return [value for model in models if (value := model.any_accuracy) is not None]


def _same_accuracy(models: Sequence[ModelResult]) -> bool:
    found = _accuracies(models)
    return max(found, default=0) - min(found, default=0) <= SAME_ACCURACY


def _span(values: Sequence[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def _how_well(models: Sequence[ModelResult]) -> str:
    """What is known of models without a verdict: how well they do."""
    found = _accuracies([model for model in models if not model.verdicts])
    return f", at an accuracy of {_span(found)}" if found else ""


def _names(models: Sequence[ModelResult]) -> str:
    names = [model.label for model in models]
    if len(names) > NAMED_AT_MOST:
        counts = Counter(model.architecture for model in models)
        names = [f"{architecture} x{count}" for architecture, count in counts.items()]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

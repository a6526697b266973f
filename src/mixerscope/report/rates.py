"""Learning rates of a sweep: which run stands for a seed, whether the best rate was the last tried, who comes first."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from mixerscope.report.data import ModelResult

ENOUGH_RATES = 3
"""Of fewer rates each is at the edge, and nobody searched."""


def merit(model: ModelResult) -> tuple[bool, float, float, float]:
    """How well a run learned, on the dev set; one that diverged stands for its width only where all of them did."""
    last = model.curve.last
    accuracy, likelihood = (last.accuracy, last.likelihood) if last else (0.0, 0.0)
    return model.status.outcome != "diverged", accuracy, likelihood, -model.training["train"]["lr"]


def chosen_runs(models: Sequence[ModelResult]) -> list[ModelResult]:
    """Of each series, width and seed the run whose learning rate is best on the dev set."""
    return [max(runs, key=merit) for runs in _tuned(models).values()]


def best_first(models: Sequence[ModelResult]) -> list[ModelResult]:
    """The best run of each series, then of each route with a name; of the others those that have one, and the best."""

    def named(model: ModelResult) -> bool:
        return bool(model.verdict and model.verdict.route)

    ranked = sorted(models, key=merit, reverse=True)
    series: dict[Any, ModelResult] = {}
    routes: dict[Any, ModelResult] = {}
    for model in ranked:
        series.setdefault(model.series, model)
        if model.verdict and named(model):
            routes.setdefault((model.mechanism, model.verdict.route), model)
    first = [model for model in models if model is series[model.series]]
    shown = {(model.mechanism, model.verdict.route) for model in first if model.verdict}
    first += [model for route, model in routes.items() if route not in shown]
    known = {id(model) for model in first}
    return first + sorted((model for model in ranked if id(model) not in known), key=named, reverse=True)


def at_the_edge(models: Sequence[ModelResult]) -> list[dict[str, Any]]:
    """Series and widths whose best rate is the smallest or the largest that was tried: a better one may lie beyond."""
    tried: dict[tuple[str, int], set[float]] = defaultdict(set)
    best: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (series, width, _), runs in _tuned(models).items():
        tried[series, width] |= {run.training["train"]["lr"] for run in runs}
        best[series, width].append(max(runs, key=merit).training["train"]["lr"])
    found: list[dict[str, Any]] = []
    for (series, width), rates in tried.items():
        for end, rate in (("smallest", min(rates)), ("largest", max(rates))):
            seeds = best[series, width].count(rate)
            if len(rates) >= ENOUGH_RATES and 2 * seeds > len(best[series, width]):
                of = len(best[series, width])
                found.append({"series": series, "width": width, "lr": rate, "end": end, "seeds": seeds, "of": of})
    return found


def _tuned(models: Sequence[ModelResult]) -> dict[tuple[str, int, Any], list[ModelResult]]:
    found: dict[tuple[str, int, Any], list[ModelResult]] = defaultdict(list)
    for model in models:
        if model.any_accuracy is not None:
            found[model.series, model.width, model.training["seed"]].append(model)
    return found

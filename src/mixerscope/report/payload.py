"""The numbers of the page, as its script reads them: one block for what is seen at once, one for single models.

Shares and scores are kept with four digits after the point. What many models have in common (the sites and roles of a
grid) is kept once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mixerscope.analysis.seeds import MIN_SEEDS
from mixerscope.analysis.stats import seeds_estimate
from mixerscope.artifacts import Estimate
from mixerscope.report.data import ModelResult, TaskGroup
from mixerscope.report.flow import as_json
from mixerscope.report.grids import MARKS, UNDEFINED, Grid
from mixerscope.report.patterns import PATTERN_NUMBERS
from mixerscope.report.patterns import as_json as patterns_json
from mixerscope.report.rates import at_the_edge, chosen_runs
from mixerscope.report.tracking import as_json as tracked_json

DIGITS = 4
CODES = "m-=x."
"""Letters for a cell's status, in the order of `grids.STATUSES`."""


def overview(groups: Sequence[TaskGroup]) -> dict[str, Any]:
    """What the figures over all models are drawn from."""
    models = [model for group in groups for model in group.models]
    numbered = {id(model): i for i, model in enumerate(models)}
    chosen = {id(run) for group in groups for run in chosen_runs(group.models)}
    return {
        "tasks": [_task(group, [numbered[id(model)] for model in group.models]) for group in groups],
        "models": [_model(model, id(model) in chosen, task) for task, g in enumerate(groups) for model in g.models],
        "curves": [_curve(model) for model in models],
        "emergence": [_emergence(model) for model in models],
        "printed": [_printed(model) for model in models],
        "marks": {"-": MARKS["no path"], "=": MARKS["same"], "x": MARKS["invalid"], "m": UNDEFINED},
    }


def details(groups: Sequence[TaskGroup]) -> dict[str, Any]:
    """What the figures of single models are drawn from."""
    frames = _Frames()
    models = [model for group in groups for model in group.models]
    room = PATTERN_NUMBERS
    found: list[dict[str, Any]] = []
    for model in models:
        patterns = model.patterns and patterns_json(model.patterns, room)
        room -= patterns["numbers"] if patterns else 0
        found.append(
            {
                "lanes": as_json(model.lanes),
                "grids": {slot: _grid(grid, frames) for slot, grid in model.grids.items()},
                "patterns": patterns,
                "tracked": tracked_json(model.tracked),
            }
        )
    return {"models": found, "frames": frames.kept, "layouts": [_layout(model) for model in models]}


def _task(group: TaskGroup, numbers: list[int]) -> dict[str, Any]:
    example = group.example
    shown = example and {
        "tokens": [[token.text, list(token.roles)] for token in example.tokens],
        "asked_at": example.asked_at,
        "answer": example.answer,
    }
    guessing = [model.guessing for model in group.models if model.guessing is not None]
    roles = dict.fromkeys(role for model in group.models if model.facts for role in model.facts.roles)
    return {
        "name": group.title,
        "tracked": any(model.tracked for model in group.models),
        "models": numbers,
        "example": shown,
        "guessing": _rounded(guessing[0]) if guessing else None,
        "roles": list(roles),
        "edges": at_the_edge(group.models),
        "seeds": _over_seeds(group, numbers),
    }


def _over_seeds(group: TaskGroup, numbers: list[int]) -> dict[str, list[Any]]:
    """Mean accuracy with its interval over seeds, by the numbers of the models that it is of: those of a series and
    width, each seed with its best learning rate, and those that differ in their seed alone."""
    chosen = {id(run) for run in chosen_runs(group.models)}
    groups: dict[tuple[Any, ...], list[tuple[int, float]]] = {}
    for number, model in zip(numbers, group.models, strict=True):
        if (accuracy := model.any_accuracy) is None:
            continue
        groups.setdefault((model.setting,), []).append((number, accuracy))
        if id(model) in chosen:
            groups.setdefault((model.series, model.width), []).append((number, accuracy))
    return {
        ",".join(str(number) for number, _ in members): _estimate(seeds_estimate([value for _, value in members])) or []
        for members in groups.values()
        if len(members) >= MIN_SEEDS
    }


def _model(model: ModelResult, chosen: bool, task: int) -> dict[str, Any]:
    training = model.training
    return {
        "task": task,
        "label": model.label,
        "series": model.series,
        "setting": model.setting,
        "architecture": model.architecture,
        "width": model.width,
        "lr": training["train"]["lr"],
        "seed": training["seed"],
        "seeds": model.seeds,
        "parameters": model.status.parameters,
        "state": model.status.state_size,
        "settings": {**{path: _plain(value) for path, value in model.differs.items()}},
        "outcome": model.status.outcome,
        "mechanism": model.mechanism,
        "named": bool(model.verdict and model.verdict.route),
        "accuracy": _estimate(model.accuracy),
        "answers": model.answers,
        "likelihood": _estimate(model.likelihood),
        "dev": _rounded(model.dev_accuracy),
        "dev_n": training["train"]["eval_documents"],
        "guessing": _rounded(model.guessing),
        "chosen": chosen,
        "run_id": model.run_id,
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _curve(model: ModelResult) -> dict[str, list[Any]]:
    points = model.curve.points
    return {
        "step": [point.step for point in points],
        **{name: [_rounded(getattr(p, name)) for p in points] for name in ("accuracy", "likelihood", "loss")},
    }


def _emergence(model: ModelResult) -> list[dict[str, Any]] | None:
    """A line per role and boundary between the blocks, of the first slot; None where nothing was measured."""
    points = model.emergence.points if model.emergence else ()
    slot = next((point.slot for point in points if point.slot), None)
    points = [point for point in points if point.slot == slot and point.site]
    between = list(dict.fromkeys(point.site for point in points))[1:-1]
    lines: dict[str, dict[str, list[Any]]] = {}
    for point in points:
        if point.site in between:
            after = f" after block {between.index(point.site)}" if len(between) > 1 else ""
            line = lines.setdefault(f"{point.role}{after}", {"step": [], "share": [], "low": [], "high": []})
            line["step"].append(point.step)
            for name in ("share", "low", "high"):
                line[name].append(_rounded(getattr(point, name)))
    known = any(share is not None for line in lines.values() for share in line["share"])
    return (
        [{"name": name, "n": _documents(model, "emergence"), **line} for name, line in lines.items()] if known else None
    )


def _documents(model: ModelResult, stage: str) -> int:
    """That a stage looked at."""
    return model.run.stages[stage].record.settings["documents"]


def _printed(model: ModelResult) -> dict[str, Any]:
    boundaries = model.facts.boundaries if model.facts else ()
    return {
        slot: {
            "original": _rounded(found.original),
            "corrupted": _rounded(found.corrupted),
            "restored": {
                f"after block {boundaries.index(site) - 1}" if site in boundaries else site: {
                    role: _rounded(value) for role, value in by_role.items()
                }
                for site, by_role in found.restored.items()
            },
        }
        for slot, found in model.printed.items()
    }


@dataclass
class _Frames:
    """Sites and roles of grids, each kind once."""

    kept: list[dict[str, Any]] = field(default_factory=list)
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def number(self, grid: Grid) -> int:
        key = grid.sites, grid.roles
        if key not in self._known:
            self._known[key] = len(self.kept)
            self.kept.append({"sites": grid.sites, "roles": grid.roles})
        return self._known[key]


def _grid(grid: Grid, frames: _Frames) -> dict[str, Any]:
    """Flat, restored before broken, then by site, then by role; shares as whole numbers of ten-thousandths."""
    flat = grid.shares.reshape(-1, 3)
    ends = [[None if v != v else round(10**DIGITS * v) for v in column] for column in flat.T.astype(float).tolist()]
    return {
        "frame": frames.number(grid),
        "n": grid.documents,
        "status": "".join(CODES[code] for code in grid.statuses.reshape(-1).tolist()),
        "share": ends[0],
        "low": ends[1],
        "high": ends[2],
        "why": [[*map(int, at), reason] for at, reason in grid.reasons.items()],
    }


def _layout(model: ModelResult) -> dict[str, Any] | None:
    """What a flow picture must know of the model."""
    facts = model.facts
    if facts is None:
        return None
    return {"blocks": len(facts.blocks), "boundaries": facts.boundaries, "roles": facts.roles, "read": facts.read}


def _estimate(estimate: Estimate | None) -> list[Any] | None:
    return estimate and [*(_rounded(v) for v in (estimate.value, estimate.low, estimate.high)), estimate.n]


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, DIGITS)

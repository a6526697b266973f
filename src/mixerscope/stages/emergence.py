"""How a mechanism comes about: the share of every role at the block boundaries while training goes on."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from pydantic import PositiveInt
from torch import Tensor

from mixerscope.analysis import Rules, mean_estimate
from mixerscope.artifacts import Artifact, EmergencePoint, Estimate
from mixerscope.artifacts import Emergence as EmergenceTable
from mixerscope.artifacts.effects import NO_GAP, Cell
from mixerscope.errors import SelfTestFailed
from mixerscope.interventions import Grid, Pairs, grids_or_failures, make_pairs, plan_grid
from mixerscope.interventions.pairs import PairSettings
from mixerscope.interventions.plan import boundary_sites
from mixerscope.interventions.table import share_estimates
from mixerscope.machine import Machine
from mixerscope.model import Model, trained_models
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Result, Stage, Watch
from mixerscope.training import log_spaced


class Emergence(PairSettings, Stage):
    """At how many steps of training the routes are measured, and on which documents."""

    revision: ClassVar[int] = 3
    """2: values are replaced within their own class."""
    watches: ClassVar[bool] = True
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (EmergenceTable,)

    looks: PositiveInt = 12
    """Log-spaced steps, the last one included."""
    batch_documents: PositiveInt = 64
    """Documents in memory at once on a CPU; changes no result beyond float rounding. A GPU takes what fits."""

    def watch(self, spec: RunSpec, machine: Machine) -> Watch:
        return _Watch(self, spec, machine)


class _Watch(Watch):
    def __init__(self, settings: Emergence, spec: RunSpec, machine: Machine) -> None:
        self.settings, self.spec, self.machine = settings, spec, machine
        self.steps = log_spaced(settings.looks, spec.train.steps)
        self.pairs = make_pairs(spec.task, settings, spec.data_seed)
        self.points: dict[int, list[EmergencePoint]] = defaultdict(list)

    def look(self, step: int, weights: Mapping[int, Mapping[str, Tensor]]) -> None:
        models = trained_models(self.spec.model, self.spec.task.vocab_size, list(weights.values()), self.machine.device)
        found = observe(step, models, self.pairs, self.settings.batch_documents)
        for index, points in zip(weights, found, strict=True):
            self.points[index] += points

    def results(self, ended: Sequence[tuple[int, Mapping[str, Tensor]]]) -> list[Result]:
        late: dict[int, dict[int, Mapping[str, Tensor]]] = defaultdict(dict)
        for index, (steps, weights) in enumerate(ended):
            if steps not in {point.step for point in self.points[index]}:
                late[steps][index] = weights
        for step, weights in late.items():
            self.look(step, weights)
        return [Done((EmergenceTable(tuple(self.points[index])),)) for index in range(len(ended))]

    def kept(self) -> list[list[Any]]:
        return [[index, [asdict(point) for point in points]] for index, points in self.points.items()]

    def restore(self, kept: list[list[Any]]) -> None:
        for index, points in kept:
            self.points[index] = [EmergencePoint(**point) for point in points]


def observe(step: int, models: Sequence[Model], pairs: Pairs, batch_documents: int) -> list[list[EmergencePoint]]:
    """The points of one step for models of one shape; one that cannot be measured gives a single one that says why."""
    unfit = [_not_finite(model) for model in models]
    sound = [model for model, name in zip(models, unfit, strict=True) if name is None]
    plan = plan_grid(models[0], pairs, boundary_sites(models[0]), directions=["restore"])
    grids = iter(grids_or_failures(sound, pairs, plan, batch_documents))
    found: list[list[EmergencePoint]] = []
    for name in unfit:
        if name is not None:
            found.append([_unmeasured(step, f"{name} is not finite")])
            continue
        grid = next(grids)
        failed = isinstance(grid, SelfTestFailed)
        found.append([_unmeasured(step, str(grid))] if failed else list(emergence_points(step, grid)))
    return found


def emergence_points(step: int, grid: Grid) -> Iterator[EmergencePoint]:
    """One per slot, site and role. A share exists once the model reads the corrupted token at all."""
    accuracy = grid.original.accuracy.double().mean().item()
    shares: dict[Cell, Estimate | None] = {}
    gaps: dict[str, Estimate] = {}
    for slot in grid.pairs.patched:
        gaps[slot] = mean_estimate(grid.original.likelihood.double() - grid.corrupted[slot].likelihood.double())
        if gaps[slot].low > Rules().min_gap:
            valid = [cell for cell, m in grid.cells.items() if cell.slot == slot and m.status != "invalid"]
            shares |= dict(zip(valid, share_estimates(grid, valid), strict=True))
    for cell, measured in grid.cells.items():
        share = shares.get(cell)
        value, low, high = (None, None, None) if share is None else (share.value, share.low, share.high)
        reason = "" if share is not None else measured.reason or NO_GAP
        gap = gaps[cell.slot].value
        yield EmergencePoint(step, cell.slot, cell.site, cell.role, value, low, high, gap, accuracy, reason)


def _not_finite(model: Model) -> str | None:
    """The first weight that is not a number, by name."""
    return next((name for name, weight in model.state_dict().items() if not bool(weight.isfinite().all())), None)


def _unmeasured(step: int, reason: str) -> EmergencePoint:
    return EmergencePoint(step, None, None, None, None, None, None, None, None, reason)

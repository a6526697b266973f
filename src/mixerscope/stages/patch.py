"""Activation patching at every site and role of the trained models: the grid, as a stage."""

import copy
from typing import Any, ClassVar

import torch
from pydantic import PositiveInt, field_validator

from mixerscope.artifacts import Artifact, Scores, SelfTest
from mixerscope.artifacts.effects import EffectTable
from mixerscope.errors import SelfTestFailed
from mixerscope.interventions import Grid, Pairs, grids_or_failures, interchange, make_pairs, unedited_effects
from mixerscope.interventions.edits import SWAP, read_edit
from mixerscope.interventions.pairs import PairSettings, each_once
from mixerscope.interventions.plan import Cell, check_plan, judging_cells, plan_grid
from mixerscope.interventions.table import effect_table, scores, scores_of
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.tasks.base import Split

LOOKED_AT = 2**14
"""Documents that are made before training to see whether they can be, at most: a million take six seconds."""


class Patch(PairSettings, Stage):
    """Which counterfactuals are made, where they are written, and how many documents measure them."""

    revision: ClassVar[int] = 4
    split: ClassVar[Split] = "test"
    """Which documents are patched."""
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (EffectTable, SelfTest, Scores)

    also_at: tuple[str, ...] = ()
    """Places to edit beside the roles of the documents: `value+2`, `pos:7`, or several at once such as `key&value`."""
    edits: tuple[str, ...] = (SWAP,)
    """What is written: `swap` is the patch, the other document's activation; `zero`, `mean`, `resample`, `noise`, or
    with settings `noise:scale=0.5,seed=1`."""
    batch_documents: PositiveInt = 64
    """Documents in memory at once on a CPU; changes no result beyond float rounding. A GPU takes what fits."""

    @field_validator("also_at")
    @classmethod
    def _named_once(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        return each_once(named)

    @field_validator("edits")
    @classmethod
    def _known(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        named = each_once(tuple(read_edit(text)[0] for text in named))
        if SWAP not in named:
            raise ValueError(f"{SWAP!r} is among the edits of every grid, got {', '.join(named) or 'none'}")
        return named

    def pairs(self, spec: RunSpec) -> Pairs:
        """The documents of this stage, the same for all members of a cohort."""
        return make_pairs(spec.task, self, spec.data_seed, self.split)

    def check(self, spec: RunSpec) -> None:
        few = self.changed(documents=min(self.documents, LOOKED_AT))
        for role in self._roles(pairs := few.pairs(spec)):
            pairs.places(role)
        assert pairs.task is not None
        pairs.task.sample(1, stream(spec.data_seed, "check"), self.split).answers()  # what guessing and proofs go by

    def run(self, trained: Trained) -> list[Result]:
        pairs = self.pairs(trained.first)
        models = trained.models
        plan = self.plan(models[0], pairs)
        found = grids_or_failures(models, pairs, plan, self.batch_documents, trained.progress)
        return [self._result(model, pairs, plan, grid) for model, grid in zip(models, found, strict=True)]

    def plan(self, model: Model, pairs: Pairs) -> list[Cell]:
        """Every cell: the grid, and what a verdict looks at beyond it."""
        plan = [*plan_grid(model, pairs, roles=self._roles(pairs), edits=self.edits), *judging_cells(model, pairs)]
        plan = list(dict.fromkeys(plan))
        check_plan(model, pairs, plan)
        return plan

    def _roles(self, pairs: Pairs) -> list[str]:
        return list(dict.fromkeys([*pairs.original.roles, *self.also_at]))

    def _result(self, model: Model, pairs: Pairs, plan: list[Cell], grid: Grid | SelfTestFailed) -> Result:
        notes: tuple[str, ...] = ()
        if isinstance(grid, SelfTestFailed) and not _is_on_cpu(model):
            # Products that a GPU rounds can hide behind a fault, or look like one. The second try is on the CPU, where
            # they are exact and no other cohort's bits depend on it.
            notes = (f"patched on the CPU in strict float32; on the GPU: {grid}",)
            grid = self._strictly(model, pairs, plan)
        if isinstance(grid, SelfTestFailed):
            return Impossible(f"the model cannot be patched: {grid}", (self._scores(model, pairs),), pairs.sha256())
        return Done((effect_table(grid, model), grid.self_test, scores(grid)), notes, pairs.sha256())

    def _strictly(self, model: Model, pairs: Pairs, plan: list[Cell]) -> Grid | SelfTestFailed:
        try:
            return interchange(copy.deepcopy(model).cpu(), pairs, plan, self.batch_documents)
        except SelfTestFailed as failure:
            return failure

    def _scores(self, model: Model, pairs: Pairs) -> Scores:
        with torch.inference_mode():
            found: Any = unedited_effects(model, pairs, self.batch_documents)
        return scores_of(*found)


class PatchDev(Patch):
    """The same grid on dev documents: where pairs are held out, these ask what training asked, and test documents do
    not."""

    revision: ClassVar[int] = 2
    split: ClassVar[Split] = "dev"


def _is_on_cpu(model: Model) -> bool:
    return next(model.parameters()).device.type == "cpu"

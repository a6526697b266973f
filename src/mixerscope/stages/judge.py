"""Verdicts from stored effects and proofs, as a stage. It needs no model, so stored runs can be judged again with other
rules."""

from typing import ClassVar

from mixerscope.analysis import Rules, judge
from mixerscope.artifacts import Artifact, Verdicts
from mixerscope.artifacts.effects import EffectTable
from mixerscope.artifacts.proof import Proof
from mixerscope.stages.base import Done, Result, Stage, Trained


class Judge(Stage):
    """The rules by which the route is named."""

    revision: ClassVar[int] = 7
    needs: ClassVar[tuple[str, ...]] = ("patch",)
    may_need: ClassVar[tuple[str, ...]] = ("prove",)
    uses_model: ClassVar[bool] = False
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Verdicts,)

    rules: Rules = Rules()
    """Thresholds of a verdict."""

    def run(self, trained: Trained) -> list[Result]:
        found: list[Result] = []
        for index in range(len(trained)):
            effects = trained.read(index, "patch", EffectTable)
            found.append(Done((judge(effects, self.rules, trained.find(index, "prove", Proof)),)))
            trained.progress(index + 1, len(trained))
        return found

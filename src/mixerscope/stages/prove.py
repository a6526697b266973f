"""Routes put to the proof while the model is at hand, as a stage: judging needs no model afterwards."""

from typing import ClassVar

from pydantic import NonNegativeInt

from mixerscope.analysis import Rules, hypotheses
from mixerscope.artifacts import Artifact
from mixerscope.artifacts.effects import EffectTable
from mixerscope.artifacts.proof import Proof
from mixerscope.interventions.prove import FRESH, Route, other_sizes, prove_cohort
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Result, Stage, Trained


class Prove(Stage):
    """Which routes are tested, and on what."""

    revision: ClassVar[int] = 7
    needs: ClassVar[tuple[str, ...]] = ("patch",)
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Proof,)

    rules: Rules = Rules()
    """By which the grid proposes routes; every route that some documents take at each station is tested."""
    fresh_documents: NonNegativeInt = FRESH
    """Documents that are changed into counterfactuals whose answer the task predicts."""
    other_documents: NonNegativeInt = 128
    """Documents of another size than those of training, to see whether the route stays; none to leave that out."""

    def run(self, trained: Trained) -> list[Result]:
        trained.progress(0, 1)
        patch = trained.first.stages["patch"]
        pairs = patch.pairs(trained.first)
        proposed = [hypotheses(trained.read(i, "patch", EffectTable), self.rules) for i in range(len(trained))]
        routes = [[Route(slot, path) for slot, path in own] for own in proposed]
        variants = other_sizes(pairs, patch, self.other_documents)
        proofs = prove_cohort(trained.models, pairs, routes, variants, patch.batch_documents, self.fresh_documents)
        trained.progress(1, 1)
        return [Done((proof,), documents=pairs.sha256()) for proof in proofs]

    def check(self, spec: RunSpec) -> None:
        patch = spec.stages["patch"]
        other_sizes(patch.changed(documents=1).pairs(spec), patch, min(1, self.other_documents))

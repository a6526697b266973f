"""How the state is tracked, from stored results, as a stage: it needs no model."""

from typing import ClassVar

from mixerscope.analysis.tracking import StateRules, judge_tracking
from mixerscope.artifacts import Artifact, Interchanges, Lengths
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.stages.base import Done, Result, Stage, Trained


class TrackStates(Stage):
    """The rules by which tracking is named."""

    needs: ClassVar[tuple[str, ...]] = ("lengths", "interchange")
    uses_model: ClassVar[bool] = False
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (StateVerdict,)

    rules: StateRules = StateRules()
    """Thresholds of a verdict."""

    def run(self, trained: Trained) -> list[Result]:
        found: list[Result] = []
        for index in range(len(trained)):
            lengths = trained.read(index, "lengths", Lengths)
            found.append(Done((judge_tracking(lengths, trained.read(index, "interchange", Interchanges), self.rules),)))
            trained.progress(index + 1, len(trained))
        return found

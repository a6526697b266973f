"""How the state is tracked, from stored results, as a stage: it needs no model."""

from typing import ClassVar

from mixerscope.analysis.state_rules import StateRules
from mixerscope.analysis.tracking import judge_tracking
from mixerscope.artifacts import Artifact, Erasures, Interchanges, Lengths
from mixerscope.artifacts.alignments import Alignments
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.stages.base import Done, Result, Stage, Trained


class TrackStates(Stage):
    """The rules by which tracking is named."""

    revision: ClassVar[int] = 10
    """2: erasures, where there are any, stand beside the other tests and can withdraw a name. 3: what is held late and
    was held early is carried too, in whatever code. 4: so is what is exchanged along directions that were learned, and
    what may be so is not called recomputed. 5: no name for what is met again by a code that nobody misses, for a code
    that turns and is met again, and for memories whose directions nobody looked at; what follows along directions
    counts beyond half at most, however much a rule guesses; erasing withdraws `carried` alone, and only where no memory
    is left unerased. 6: nothing is called carried in models that hold nothing, nor where the last answers do not follow
    though earlier ones do. 7: that something was erased is known where documents that it was not found in say so. 8:
    what is written must be followed in memory alone, at every distance, and learned directions were learned there and
    where the memory answers; a code that means a little elsewhere is no other one; what erasing costs is that between
    blocks; guesses are of all answers; and no name rests on there being no memory where something that a mixer may hold
    could not be written. What decided is kept. 9: recomputed is what learned directions surely do not hold, by their
    intervals; at each distance, too, they count beyond chance. 10: of all learned directions, not of those alone whose
    weakest test is strongest."""
    needs: ClassVar[tuple[str, ...]] = ("lengths", "interchange")
    may_need: ClassVar[tuple[str, ...]] = ("erase", "align")
    uses_model: ClassVar[bool] = False
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (StateVerdict,)

    rules: StateRules = StateRules()
    """Thresholds of a verdict."""

    def run(self, trained: Trained) -> list[Result]:
        found: list[Result] = []
        for index in range(len(trained)):
            lengths = trained.read(index, "lengths", Lengths)
            written = trained.read(index, "interchange", Interchanges)
            erased = trained.find(index, "erase", Erasures)
            aligned = trained.find(index, "align", Alignments)
            found.append(Done((judge_tracking(lengths, written, self.rules, erased, aligned),)))
            trained.progress(index + 1, len(trained))
        return found

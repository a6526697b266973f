"""The rules of a verdict: every threshold, in one place. `docs/verdicts.md` says how they are applied.

They reproduce the published reading of restoration before block 1 of a two-layer model, the inner route of Mamba's
block 0 (its convolution carries the key to the position after the value, Figure 5) and the filter on the behavioural
gap (Figure 12b). Names of routes are the task's (`Task.mechanisms`).
"""

from collections.abc import Sequence

from pydantic import Field, PositiveInt

from mixerscope.artifacts.effects import Mechanism
from mixerscope.spec.base import Spec

NOT_LEARNED = "not learned"
NOT_RETRIEVAL = "not retrieval"
UNDETERMINED = "undetermined"
OTHER = "other"
"""What a verdict says where no route has been found, or none with a name; 'other' is followed by the places."""


class Rules(Spec):
    """Thresholds; stored effects can be judged again with others."""

    min_gap: float = Field(default=0.01, ge=0, lt=1)
    """Smallest difference in likelihood between original and corrupted documents that counts as reading the corrupted
    token; the published filter for associative recall (Figure 12b). The lower end of the interval must exceed it."""
    min_documents: PositiveInt = 16
    """Fewer documents than this are no evidence: intervals over a handful of them mean little."""
    carries: float = Field(default=0.5, gt=0, lt=1)
    """A role carries the information when the interval of its share lies above this, restoring and breaking alike.
    More than half leaves room for one role only, as long as shares add up; the published figures speak of the role
    with the largest share and have no threshold."""
    solves: float = Field(default=0.5, gt=0, lt=1)
    """A model that answers more than this share of the documents, interval included, has learned the task. If the
    pair that holds the answer plays no part in it, that is not retrieval. No published counterpart: there, such a
    model is dropped by the filter on the gap, as if it had learned nothing."""


def mechanism_of(route: tuple[str, ...], slot: str, named: Sequence[Mechanism]) -> str:
    """The name of a route, or 'other' and where it goes in between: `other: offset +3`."""
    for mechanism in named:
        if mechanism.route == route:
            return mechanism.name
    places = [f"offset {place.removeprefix(slot)}" if place[-1].isdigit() else place for place in route[1:-1]]
    return f"{OTHER}: {', '.join(places)}" if places else OTHER

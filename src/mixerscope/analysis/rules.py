"""The rules of a verdict: every threshold, in one place. `docs/verdicts.md` says how they are applied.

Names of routes are the task's (`Task.mechanisms`). The published reading, which has one threshold and no tests, is read
off beside ours (`analysis.published`), and is the verdict itself where the rules say so.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from mixerscope.artifacts.effects import Mechanism
from mixerscope.spec.base import Spec

NOT_LEARNED = "not above guessing"
NOT_RETRIEVAL = "not retrieval"
UNDETERMINED = "undetermined"
CONTRADICTED = "contradicted"
UNPROVEN = "unproven"
OTHER = "other"
"""What a verdict says where no route has been found, or none with a name; 'other' is followed by the places, 'unproven'
by the name that was not tested."""
NO_NAME = (NOT_LEARNED, NOT_RETRIEVAL, UNDETERMINED, CONTRADICTED, UNPROVEN)


class Rules(Spec):
    """Thresholds; stored effects can be judged again with others. Where an interval is spoken of, all of it must lie
    above the threshold."""

    carries: float = Field(default=0.5, gt=0, lt=1)
    """Of one document: a place carries the information when restoring it goes further than this towards the clean run,
    and breaking it further than this towards the corrupted one. More than half leaves room for one place only."""
    names: float = Field(default=0.9, gt=0, lt=1)
    """Share of the documents, interval included, that must take a route for it to have a name, and in which key and
    value must meet where it says. A majority is a mixture."""
    follows: float = Field(default=0.9, gt=0, lt=1)
    """Share of counterfactual documents, as a part of the model's accuracy, that must be answered as predicted."""
    solves: float = Field(default=0.8, gt=0, lt=1)
    """The same of documents of another size: where fewer are answered, nothing is asked of their route."""
    robust: float = Field(default=0.8, gt=0, lt=1)
    """Share of the documents of another size, where the model solves those, that must take the same route."""
    reads: float = Field(default=0.2, gt=0, lt=1)
    """A model that answers, but loses fewer of its answers than this when the token at a slot is changed, does not use
    that token; nor does it in a document where the answer stays, and moves by less than this part of what it moves by
    where it goes. A key that is at one of two places has half a say."""
    min_documents: PositiveInt = 16
    """Fewer documents than this are no evidence: intervals over a handful of them mean little."""
    min_gap: float = Field(default=0.01, ge=0, lt=1)
    """Of the published reading: the smallest difference in likelihood between clean and corrupted documents that counts
    (the filter of Figure 12b)."""
    reading: Literal["tested", "published"] = "tested"
    """Whether a route is put to the tests, or read off as in the paper: the role with the largest restoration at each
    boundary, untested. The string `published` in place of rules means this."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        return {"reading": data} if isinstance(data, str) else data


RulesLike = Rules | Literal["published"] | None
"""Rules, none for the usual ones, or the published reading by its name."""


def as_rules(rules: RulesLike) -> Rules:
    return Rules() if rules is None else Rules.model_validate(rules)


def mechanism_of(
    route: tuple[str, ...], slot: str, named: Sequence[Mechanism], beside: Mapping[str, tuple[str, ...]] | None = None
) -> str:
    """The name of a route, or 'other' and where it goes in between: `other: offset +3`. `beside`: routes of the slots
    that belong to it, where they are known; one that is not the mechanism's makes it another mechanism."""
    places = [f"offset {place.removeprefix(slot)}" if place[-1].isdigit() else place for place in route[1:-1]]
    for mechanism in named:
        if mechanism.route == route:
            wrong = [s for s, way in mechanism.beside if beside and beside.get(s, way) != way]
            if not wrong:
                return mechanism.name
            places += [f"{other} by {' → '.join((beside or {})[other])}" for other in wrong]
    return f"{OTHER}: {', '.join(places)}" if places else OTHER

"""The rules of a verdict: every name and every threshold, in one place. `docs/verdicts.md` says how they are applied.

They reproduce the published reading of restoration before block 1 of a two-layer model (value: induction; query:
direct retrieval by block 0; key: by block 1), the inner route of Mamba's block 0 (its convolution carries the key to
the position after the value, Figure 5) and the filter on the behavioural gap (Figure 12b).
"""

MIN_GAP = 0.01
"""Smallest difference in likelihood between original and corrupted documents that counts as reading the corrupted
token; the published filter for associative recall (Figure 12b). The lower end of the interval must exceed it."""

MIN_DOCUMENTS = 16
"""Fewer documents than this are no evidence: intervals over a handful of them mean little."""

CARRIES = 0.5
"""A role carries the information when the interval of its share lies above this, restoring and breaking alike. More
than half leaves room for one role only, as long as shares add up; the published figures speak of the role with the
largest share and have no threshold."""

SOLVES = 0.5
"""A model that answers more than this share of the documents, interval included, has learned the task. If the pair
that holds the answer plays no part in it, that is not retrieval. No published counterpart: there, such a model is
dropped by the filter on the gap, as if it had learned nothing."""

OFFSETS = (-1, 2, 3, 4)
"""Positions around the corrupted token that are tried where no role carries the information. Figure 5 looks at the
two positions after the value, which are +2 and +3 from the key."""

MECHANISMS = {
    ("key", "value", "query"): "induction",
    ("key", "query"): "direct retrieval",
    ("key", "next_key", "query"): "association one step later",
    ("value", "query"): "value copy",
}
"""Routes between blocks that have a name."""

NOT_LEARNED = "not learned"
NOT_RETRIEVAL = "not retrieval"
UNDETERMINED = "undetermined"
OTHER = "other"
"""What a verdict says where no route has been found, or none with a name; 'other' is followed by the places."""


def mechanism_of(route: tuple[str, ...], slot: str) -> str:
    """The name of a route, or 'other' and where it goes in between: `other: offset +3`."""
    if route in MECHANISMS:
        return MECHANISMS[route]
    places = [f"offset {place.removeprefix(slot)}" if place[-1].isdigit() else place for place in route[1:-1]]
    return f"{OTHER}: {', '.join(places)}" if places else OTHER

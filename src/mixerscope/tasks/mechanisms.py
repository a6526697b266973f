"""Names of routes in tasks that retrieve: a key stands beside its value, and a query asks for it.

They reproduce the published reading of restoration before block 1 of a two-layer model: value, induction; query,
direct retrieval by block 0; key, by block 1.
"""

from mixerscope.artifacts.effects import Mechanism

RETRIEVAL = (
    Mechanism(("key", "value", "query"), "induction", "the association is stored at the value, then retrieved"),
    Mechanism(("key", "query"), "direct retrieval", "one block goes from the key straight to the query"),
    Mechanism(
        ("key", "next_key", "query"),
        "association one step later",
        "the association is stored at the token after the value, then retrieved",
    ),
    Mechanism(
        ("value", "query"), "value copy", "the value is copied to the query; how it was found is for the key to tell"
    ),
)
PAIR = ("key", "value")
"""Slots that a model which retrieves reads both of."""

"""Names of routes in tasks that retrieve: a key stands beside its value, and a query asks for it.

They reproduce the published reading of restoration before block 1 of a two-layer model: value, induction; query,
direct retrieval by block 0; key, by block 1.
"""

from mixerscope.artifacts.effects import Mechanism

COPIED = (("value", ("value", "query")),)
"""The value stays where it stands until the block that retrieves."""
RETRIEVAL = (
    Mechanism(("key", "value", "query"), "induction", "the association is stored at the value, then retrieved", COPIED),
    Mechanism(("key", "query"), "direct retrieval", "one block goes from the key straight to the query", COPIED),
    Mechanism(
        ("key", "next_key", "query"),
        "association one step later",
        "the association is stored at the token after the value, then retrieved",
        (("value", ("value", "next_key", "query")),),
    ),
    Mechanism(
        ("value", "query"), "value copy", "the value is copied to the query; how it was found is for the key to tell"
    ),
)
PAIR = ("key", "value", "query")
"""Slots that a model which retrieves reads all of."""

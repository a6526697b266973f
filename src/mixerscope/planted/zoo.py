"""Every planted model with what is known of it: what the release gate and the tests go through."""

from mixerscope.planted import (
    brought_unasked,
    exceptions,
    helped,
    mixtures,
    one_route,
    separate_ways,
    settings,
    several_at_once,
    shams,
)
from mixerscope.planted import truth as declared
from mixerscope.planted.models import (
    conv_recurrence,
    convolution_before_attention,
    direct_retriever,
    induction_transformer,
    lagged_induction,
    memoriser,
    position_memoriser,
    position_reader,
    split_induction,
    two_routes,
)
from mixerscope.planted.tasks import FixedMapAR, ThirdPairAR, ThirdPairFixedMapAR
from mixerscope.planted.truth import DOCUMENTS, SIZE, TASK, Planted, Route, by_induction, in_blocks, nameless

__all__ = ["ALL", "DOCUMENTS", "EVERY", "MIXED", "MORE", "RETRIEVERS", "SHAMS", "SIZE", "TASK", "Planted", "Route"]


RETRIEVERS = (
    declared.one_route("induction, attention", induction_transformer, "induction", by_induction()),
    declared.one_route(
        "induction, two heads",
        lambda task, seed: induction_transformer(task, seed, heads=2),
        "induction",
        by_induction("attention head 1", "attention head 1"),
    ),
    declared.one_route(
        "induction, three layers",
        lambda task, seed: induction_transformer(task, seed, idle_before=1),
        "induction",
        in_blocks(
            "key key value query",
            "value value value query",
            (1, "attention", "key", "value"),
            (2, "attention", "value", "query"),
        ),
    ),
    declared.one_route(
        "induction, convolution then attention",
        lambda task, seed: lagged_induction(task, seed, lag=1),
        "induction",
        in_blocks(
            "key value query",
            "value value query",
            (0, "short convolution", "key", "value"),
            (1, "attention", "value", "query"),
        ),
    ),
    declared.one_route(
        "convolution and attention in one block",
        convolution_before_attention,
        "direct retrieval",
        in_blocks(
            "key query",
            "value query",
            (0, "block short convolution", "key", "value"),
            (0, "attention", "value", "query"),
        ),
    ),
    declared.one_route(
        "direct retrieval, block 0",
        lambda task, seed: direct_retriever(task, seed, block=0, layers=2),
        "direct retrieval",
        in_blocks("key query query", "value query query", (0, "FusedRecall", "key", "query")),
    ),
    declared.one_route(
        "direct retrieval, block 1",
        lambda task, seed: direct_retriever(task, seed, block=1, layers=2),
        "direct retrieval",
        in_blocks("key key query", "value value query", (1, "FusedRecall", "key", "query")),
    ),
    declared.one_route(
        "convolution and recurrence in one block",
        conv_recurrence,
        "direct retrieval",
        in_blocks(
            "key query",
            "value query",
            (0, "short convolution", "key", "next_key"),
            (0, "recurrence", "next_key", "query"),
        ),
    ),
    declared.one_route(
        "association one step later",
        lambda task, seed: lagged_induction(task, seed, lag=2),
        "association one step later",
        in_blocks(
            "key next_key query",
            "value next_key query",
            (0, "short convolution", "key", "next_key"),
            (1, "attention", "next_key", "query"),
        ),
        with_value_corrupted="other: next_key",
    ),
    declared.one_route(
        "association two steps later",
        lambda task, seed: lagged_induction(task, seed, lag=3),
        "other: offset +3",
        in_blocks(
            "key key+3 query",
            "value key+3 query",
            (0, "short convolution", "key", "key+3"),
            (1, "attention", "key+3", "query"),
        ),
        with_value_corrupted="other: offset +2",
    ),
)
"""Each has one route."""

MIXED = (
    nameless(
        "two routes",
        two_routes,
        "mixture",
        in_blocks("key value query", "value value query", key_alone=(1.0, 0.0)),
        in_blocks("key key query", "value value query", key_alone=(1.0, 0.0)),
    ),
    nameless(
        "two routes for half of the keys",
        lambda task, seed: two_routes(task, seed, only_first_keys=True),
        "mixture",
        in_blocks("key value query", "value value query", fraction=0.5, key_alone=(0.5, 0.0), value_alone=(1.0, 1.0)),
        in_blocks("key key query", "value value query", key_alone=(1.0, 0.5)),
    ),
    nameless(
        "another route for half of the keys",
        split_induction,
        "mixture",
        in_blocks("key value query", "value value query", fraction=0.5),
        in_blocks("key next_key query", "value next_key query", fraction=0.5),
        with_value_corrupted="undetermined",
    ),
)
"""Two routes side by side."""

SHAMS = (
    nameless(
        "sham: memoriser",
        memoriser,
        "no retrieval",
        task=FixedMapAR(**SIZE),
        reads=("query",),
        follows={"swap-keys": 0.0, "value": 0.0},
    ),
    nameless(
        "sham: position reader",
        position_reader,
        "no retrieval",
        task=ThirdPairAR(**SIZE),
        reads=("value",),
        follows={"query": 0.0, "swap-keys": 0.0},
    ),
    nameless(
        "sham: position memoriser",
        position_memoriser,
        "no retrieval",
        task=ThirdPairFixedMapAR(**SIZE),
        reads=("key",),
        # The key that comes to the third pair is the one whose value is the new answer, and that value it knows.
        follows={"query": 0.0, "value": 0.0},
    ),
)
"""They solve their task and retrieve nothing."""

ALL = (*RETRIEVERS, *MIXED, *SHAMS)
"""Those of the recorded release gate."""
MORE = (
    *one_route.ENTRIES,
    *settings.ENTRIES,
    *separate_ways.ENTRIES,
    *brought_unasked.ENTRIES,
    *mixtures.ENTRIES,
    *exceptions.ENTRIES,
    *several_at_once.ENTRIES,
    *helped.ENTRIES,
    *shams.ENTRIES,
)
"""Kinds that look like something else to whoever does not test what he sees."""
EVERY = (*ALL, *MORE)

"""Every planted model with the verdict it must get: what the release gate and the tests go through."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mixerscope.artifacts import Verdict
from mixerscope.interventions import PairSettings, interchange, make_pairs, verdict
from mixerscope.model import Model
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
from mixerscope.randomness import stream
from mixerscope.tasks import AR

SIZE: dict[str, Any] = {"num_pairs": 4, "num_keys": 8, "num_values": 8}
TASK = AR(**SIZE)
DOCUMENTS = 64

Step = tuple[int, str, str, str]
"""Block, component, from, to."""


@dataclass(frozen=True)
class Planted:
    """A model whose mechanism is known, and what has to be found with the key corrupted and with the value."""

    name: str
    build: Callable[[AR, int], Model]
    """From task and seed."""
    mechanism: str
    moves: tuple[Step, ...] = ()
    with_value_corrupted: str = "value copy"
    task: AR = TASK

    def solved(self, model: Model, documents: int = 200) -> float:
        """Share of fresh documents that the model answers."""
        batch = self.task.sample(documents, stream(1, "planted"))
        read, answers = batch.answers()
        return (model(batch.tokens, read[:, None])[:, 0].argmax(-1) == answers).float().mean().item()

    def judge(self, model: Model, slots: tuple[str, ...] = ("key", "value")) -> dict[str, Verdict]:
        """The verdicts by slot."""
        spec = PairSettings(documents=DOCUMENTS, slots=slots, avoid_present=True)
        grid = interchange(model, make_pairs(self.task, spec, data_seed=0))
        return {slot: verdict(grid, model, slot) for slot in slots}

    def expected(self, slot: str) -> str:
        return self.mechanism if slot == "key" else self.with_value_corrupted


def _induction(block: int, component: str = "attention") -> tuple[Step, ...]:
    return (block, component, "key", "value"), (block + 1, component, "value", "query")


RETRIEVERS = (
    Planted("induction, attention", induction_transformer, "induction", _induction(0)),
    Planted(
        "induction, two heads",
        lambda task, seed: induction_transformer(task, seed, heads=2),
        "induction",
        _induction(0, "attention head 1"),
    ),
    Planted(
        "induction, three layers",
        lambda task, seed: induction_transformer(task, seed, idle_before=1),
        "induction",
        _induction(1),
    ),
    Planted(
        "induction, convolution then attention",
        lambda task, seed: lagged_induction(task, seed, lag=1),
        "induction",
        ((0, "short convolution", "key", "value"), (1, "attention", "value", "query")),
    ),
    Planted(
        "convolution and attention in one block",
        convolution_before_attention,
        "direct retrieval",
        ((0, "block short convolution", "key", "value"), (0, "attention", "value", "query")),
    ),
    Planted(
        "direct retrieval, block 0",
        lambda task, seed: direct_retriever(task, seed, block=0, layers=2),
        "direct retrieval",
        ((0, "FusedRecall", "key", "query"),),
    ),
    Planted(
        "direct retrieval, block 1",
        lambda task, seed: direct_retriever(task, seed, block=1, layers=2),
        "direct retrieval",
        ((1, "FusedRecall", "key", "query"),),
    ),
    Planted(
        "convolution and recurrence in one block",
        conv_recurrence,
        "direct retrieval",
        ((0, "short convolution", "key", "next_key"), (0, "recurrence", "next_key", "query")),
    ),
    Planted(
        "association one step later",
        lambda task, seed: lagged_induction(task, seed, lag=2),
        "association one step later",
        ((0, "short convolution", "key", "next_key"), (1, "attention", "next_key", "query")),
        with_value_corrupted="other: next_key",
    ),
    Planted(
        "association two steps later",
        lambda task, seed: lagged_induction(task, seed, lag=3),
        "other: offset +3",
        ((0, "short convolution", "key", "key+3"), (1, "attention", "key+3", "query")),
        with_value_corrupted="other: offset +2",
    ),
)
"""Each has one route."""

MIXED = (
    Planted("two routes", two_routes, "undetermined"),
    Planted(
        "two routes for half of the keys",
        lambda task, seed: two_routes(task, seed, only_first_keys=True),
        "undetermined",
    ),
    Planted(
        "another route for half of the keys",
        split_induction,
        "undetermined",
        with_value_corrupted="undetermined",
    ),
)
"""Two routes side by side."""

SHAMS = (
    Planted(
        "sham: memoriser",
        memoriser,
        "not retrieval",
        with_value_corrupted="not retrieval",
        task=FixedMapAR(**SIZE),
    ),
    Planted(
        "sham: position reader",
        position_reader,
        "not retrieval",
        with_value_corrupted="not retrieval",
        task=ThirdPairAR(**SIZE),
    ),
    Planted(
        "sham: position memoriser",
        position_memoriser,
        "not retrieval",
        with_value_corrupted="not retrieval",
        task=ThirdPairFixedMapAR(**SIZE),
    ),
)
"""They solve their task and retrieve nothing."""

ALL = (*RETRIEVERS, *MIXED, *SHAMS)

"""What is known of a planted model, in words of its own: which routes there are, in which documents each is taken.

Nothing here depends on how a verdict is made or worded, but for the names that it may give (`mechanism`, `acceptable`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from mixerscope.artifacts import Verdict
from mixerscope.interventions import PairSettings, interchange, make_pairs, verdict_plan, verdicts
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.tasks import AR

SIZE: dict[str, Any] = {"num_pairs": 4, "num_keys": 8, "num_values": 8}
TASK = AR(**SIZE)
DOCUMENTS = 64

Kind = Literal["one route", "mixture", "distributed", "no retrieval", "not above guessing"]
"""`one route` holds in every document that is answered; of a `mixture` each holds in some, or several in all;
`distributed` needs several places at once; `no retrieval` answers without reading the pair that is asked, or without
knowing which one it is; `not above guessing` answers no more than that."""
UNNAMED: Mapping[Kind, tuple[str, ...]] = {
    "one route": (),
    "mixture": ("undetermined", "contradicted"),
    "distributed": ("undetermined", "contradicted"),
    "no retrieval": ("not retrieval",),
    "not above guessing": ("not above guessing", "not learned"),
}
"""What may be said of each kind that has no name."""
PAIR_AND_QUERY = ("key", "value", "query")
IN_ALL = (1.0, 1.0)
"""Documents in which a route suffices, and those in which it is needed."""

Step = tuple[int, str, str, str]
"""Block, component, from, to."""


@dataclass(frozen=True)
class Route:
    """Who carries what the key and the value say, at the input of every block and behind the last one."""

    key: tuple[str, ...]
    """Roles, or offsets such as `key+3`; `value&next_key` where it takes both."""
    value: tuple[str, ...]
    moves: tuple[Step, ...] = ()
    """Which part carried the key where; left out where nobody is asked for it."""
    fraction: float = 1.0
    """Of the documents that are answered: those in which this route is taken."""
    key_alone: tuple[float, float] | None = None
    """What a test of the whole route finds with the key corrupted: in which fraction the route alone gives the answer,
    all else being corrupted, and in which the answer is lost without it, all else being clean. Left out, it is both
    where the route is taken; other numbers mean that one route can stand in for another, or silence it."""
    value_alone: tuple[float, float] | None = None
    """The same with the value corrupted."""

    @property
    def meets(self) -> tuple[int, str] | None:
        """The block from which on key and value go together, and the place it brings them to."""
        found = None
        for block in reversed(range(len(self.key) - 1)):
            if self.key[block + 1] != self.value[block + 1]:
                break
            found = block, self.key[block + 1]
        return found

    def carriers(self, slot: str) -> tuple[str, ...]:
        """Of what the key says, or the value."""
        return {"key": self.key, "value": self.value}[slot]

    def alone(self, slot: str) -> tuple[float, float]:
        """In which fraction it suffices, and in which it is needed."""
        found = {"key": self.key_alone, "value": self.value_alone}[slot]
        return (self.fraction, self.fraction) if found is None else found

    def blocks_that_move(self, slot: str) -> list[int]:
        return [block for block, (a, b) in enumerate(pairwise(self.carriers(slot))) if a != b]


@dataclass(frozen=True)
class Planted:
    """A model whose mechanism is known, and what may be found with the key corrupted and with the value."""

    name: str
    build: Callable[[AR, int], Model]
    """From task and seed."""
    kind: Kind
    mechanism: str
    """What a verdict on the key has to say."""
    routes: tuple[Route, ...] = ()
    with_value_corrupted: str = "value copy"
    acceptable: tuple[str, ...] = ()
    """All that it may say, the mechanism included."""
    task: AR = TASK
    accuracy: tuple[float, float] = (1.0, 1.0)
    """Lowest and highest."""
    reads: tuple[str, ...] = PAIR_AND_QUERY
    """Slots that can change what the model says."""
    follows: Mapping[str, float] = field(default_factory=dict, hash=False)
    """By kind of counterfactual: in which fraction the model gives the answer that the task predicts; 1 if not said."""
    documents: int = DOCUMENTS
    """To judge it on: where half of them are not answered it takes twice as many to give a name."""

    @property
    def moves(self) -> tuple[Step, ...]:
        """Of the one route."""
        return self.routes[0].moves if self.kind == "one route" else ()

    def solved(self, model: Model, documents: int = 200) -> float:
        """Share of fresh documents that the model answers."""
        batch = self.task.sample(documents, stream(1, "planted"))
        read, answers = batch.answers()
        return (model(batch.tokens, read[:, None])[:, 0].argmax(-1) == answers).float().mean().item()

    def judge(
        self, model: Model, slots: tuple[str, ...] = ("key", "value"), documents: int | None = None
    ) -> dict[str, Verdict]:
        """The verdicts by slot, on so many documents (default: its own number)."""
        spec = PairSettings(documents=documents or self.documents, slots=slots, avoid_present=True)
        pairs = make_pairs(self.task, spec, data_seed=0)
        return verdicts(interchange(model, pairs, verdict_plan(model, pairs)), model).by_slot

    def expected(self, slot: str) -> str:
        return self.mechanism if slot == "key" else self.with_value_corrupted

    def accepts(self, slot: str, mechanism: str) -> bool:
        """Whether a verdict on a slot is no mistake. One on the value may refuse a name where one on the key may."""
        if slot == "key":
            return mechanism in self.acceptable
        refusals = {name for names in UNNAMED.values() for name in names}
        return mechanism == self.with_value_corrupted or mechanism in refusals.intersection(self.acceptable)


def one_route(
    name: str, build: Callable[[AR, int], Model], mechanism: str, route: Route, *also: str, **truth: Any
) -> Planted:
    """A model with one route; `also` are names that are no mistake."""
    return Planted(name, build, "one route", mechanism, (route,), acceptable=(mechanism, *also), **truth)


def nameless(
    name: str, build: Callable[[AR, int], Model], kind: Kind, *routes: Route, also: tuple[str, ...] = (), **truth: Any
) -> Planted:
    """A model whose mechanism has no name, but a description."""
    names = (*UNNAMED[kind], *also)
    if kind in ("no retrieval", "not above guessing"):
        truth = {"with_value_corrupted": names[0], **truth}
    return Planted(name, build, kind, names[0], routes, acceptable=names, **truth)


def in_blocks(key: str, value: str, *moves: Step, **fractions: Any) -> Route:
    """A route from its carriers as people write them: `in_blocks("key value query", "value value query")`."""
    return Route(tuple(key.split()), tuple(value.split()), moves, **fractions)


def by_induction(first: str = "attention", second: str = "attention", **fractions: Any) -> Route:
    """The association is stored at the value by a part of block 0 and retrieved by one of block 1."""
    moves = (0, first, "key", "value"), (1, second, "value", "query")
    return in_blocks("key value query", "value value query", *moves, **fractions)

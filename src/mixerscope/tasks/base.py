"""What a task is: documents, the counterfactuals made of them, and an independent solver."""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor

from mixerscope.artifacts.effects import Mechanism
from mixerscope.errors import UnknownName, UserError
from mixerscope.randomness import stream
from mixerscope.showing import Shown, counted
from mixerscope.spec.base import Spec

UNSCORED = -100
"""Target of a position that is not scored."""

PAD, BOS, EOS = 0, 1, 2
FIRST_SYMBOL = 3
"""Tokens below this one mean the same in every task."""
SPECIAL_NAMES = ("PAD", "BOS", "EOS")

ROLE_NAME = re.compile(r"[A-Za-z_]\w*")
"""What a role can be called, so that `key+2`, `pos:7` and `key&value` can be told from names."""

MOST_REDRAWS = 100
"""How often `corrupt(change_answer=True)` draws again before it gives up on a document."""
LEAST_ACCEPTED = 0.01
"""Share of drawn documents that must be usable; a task below it stops instead of looping."""
LEAST_KEPT = 0.002
"""The same for those that also belong to the split asked for."""
TRIED_BEFORE_STOPPING = 2000

Split = Literal["train", "dev", "test"]
SPLITS = get_args(Split)
Symbols = Literal["query-class", "slot-class"]
SYMBOLS = get_args(Symbols)


@dataclass(frozen=True, repr=False)
class Batch(Shown):
    """Documents as tensors. `targets[i, t]` is what the logits at position t of document i should predict."""

    tokens: Tensor
    """[n, t] token ids."""
    targets: Tensor
    """[n, t] token ids, `UNSCORED` where nothing is asked."""
    roles: Mapping[str, Tensor] = field(default_factory=dict)
    """Name to [n] positions: where in each document the key, the value, the query, ... stand."""
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    """Name to [n] facts about each document, for grouping results; [n, t] where each token has its own."""

    def sentence(self) -> str:
        """One line for people."""
        size = f"{counted(len(self), 'document')} of {counted(self.tokens.shape[1], 'token')}"
        return f"{size}; {', '.join(self.roles) or 'no roles'}"

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, index: slice | Tensor) -> "Batch":
        return Batch(
            self.tokens[index],
            self.targets[index],
            {name: at[index] for name, at in self.roles.items()},
            {name: label[index] for name, label in self.labels.items()},
        )

    def to(self, device: torch.device) -> "Batch":
        """The same documents on a device."""
        roles = {name: at.to(device) for name, at in self.roles.items()}
        labels = {name: label.to(device) for name, label in self.labels.items()}
        return Batch(self.tokens.to(device), self.targets.to(device), roles, labels)

    def role(self, name: str) -> Tensor:
        """[n] positions of a role."""
        if name not in self.roles:
            raise UnknownName("role", name, self.roles)
        return self.roles[name]

    def scored(self) -> tuple[Tensor, Tensor]:
        """[n, q] scored positions and their targets. A document with fewer than q repeats position 0, unscored."""
        asked = self.targets != UNSCORED
        count = int(asked.sum(1).max()) if len(self) else 0
        # A stable sort on "not asked" brings the asked positions to the front, in their order.
        positions = torch.argsort((~asked).to(torch.int8), dim=1, stable=True)[:, :count]
        targets = self.targets.gather(1, positions)
        return positions.where(targets != UNSCORED, torch.zeros_like(positions)), targets

    def answers(self) -> tuple[Tensor, Tensor]:
        """[n] position and token of the one answer of each document; for documents with a single query."""
        positions, targets = self.scored()
        if positions.shape[1] != 1 or bool((targets == UNSCORED).any()):
            raise UserError(
                "these documents do not have exactly one scored position each; `single_query` of a task says how to ask"
                " one thing, and `reads` such as 'scored' measure several"
            )
        return positions[:, 0], targets[:, 0]

    def sha256(self) -> str:
        """Hash of tokens, targets and roles."""
        sha = hashlib.sha256()
        for name, tensor in [("tokens", self.tokens), ("targets", self.targets), *sorted(self.roles.items())]:
            sha.update(f"{name}{tuple(tensor.shape)}".encode())
            sha.update(tensor.to(torch.int64).contiguous().numpy().tobytes())
        return sha.hexdigest()


@dataclass(frozen=True)
class Change:
    """Documents in which one thing was changed, and what they then answer."""

    tokens: Tensor
    """[n, t]"""
    answers: Tensor
    """[n] tokens."""
    possible: Tensor
    """[n] whether the document could be changed so; where not, the rest means nothing."""


class Task(Spec):
    """A synthetic task. Fields are its only configuration; all randomness comes from the generator passed in."""

    size_limit: ClassVar[int] = 2**20
    """Of any whole number that is a setting of a task, but for seeds: documents and vocabularies are kept in memory."""
    revision: ClassVar[int] = 1
    """Raised when the documents, their counterfactuals or a default change, so that runs of before keep their ids and
    new ones get others."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named settings: name to the fields that differ from the defaults."""
    mechanisms: ClassVar[tuple[Mechanism, ...]] = ()
    """Routes through the roles of this task that have a name."""
    together: ClassVar[tuple[str, ...]] = ()
    """Slots that every model which solves the task as meant reads all of; one that ignores some does something else."""
    usual_stages: ClassVar[tuple[str, ...]] = ("patch", "prove", "judge", "patterns")
    """Stages that the preset `small` of a run asks for."""
    windows: ClassVar[tuple[int, ...]] = (1, 2, 3)
    """How many of the last tokens the rules of guessing read."""

    @classmethod
    def preset_fields(cls, name: str) -> dict[str, Any]:
        """The fields that a named preset sets."""
        if name not in cls.presets:
            raise UnknownName(f"preset of {cls.__name__}", name, cls.presets)
        return dict(cls.presets[name])

    @classmethod
    def preset(cls, name: str) -> Self:
        """The task with the fields of a named preset."""
        return cls.model_validate(cls.preset_fields(name))

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Rows of the model's embedding."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Tokens of the longest document."""

    @property
    @abstractmethod
    def slots(self) -> tuple[str, ...]:
        """Roles whose token `corrupt` can change."""

    @abstractmethod
    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        """n documents."""

    @abstractmethod
    def solve(self, batch: Batch) -> Tensor:
        """[n, q] answers to the scored positions, found from the documents alone, not from how they were made."""

    @abstractmethod
    def symbol(self, token: int) -> str:
        """A token as people write it."""

    @abstractmethod
    def symbol_class(self, slot: str, symbols: Symbols) -> tuple[int, int]:
        """First token and number of tokens of the class from which `corrupt` draws for a slot."""

    def single_query(self) -> "Task":
        """The same task with one query per document, on which models are evaluated and patched."""
        return self

    def batches(
        self, size: int, rng: torch.Generator, split: Split = "train", count: int | None = None
    ) -> Iterator[Batch]:
        """Batches of `size` fresh documents, `count` of them or without end."""
        made = 0
        while count is None or made < count:
            yield self.sample(size, rng, split)
            made += 1

    def corrupt(
        self,
        batch: Batch,
        slot: str,
        rng: torch.Generator,
        symbols: Symbols = "query-class",
        avoid_present: bool = False,
        change_answer: bool = False,
    ) -> Batch:
        """The counterfactual: the same documents with the token at `slot` changed, targets as they were.

        The new token is uniform over the others of its class; `avoid_present` leaves out those that stand in the
        document, `change_answer` those with which the document still has the answer it had.
        """
        if slot not in self.slots:
            raise UnknownName("slot", slot, self.slots)
        if symbols not in SYMBOLS:
            raise UnknownName("class of symbols", symbols, SYMBOLS)
        first, count = self.symbol_class(slot, symbols)
        if not change_answer:
            return self._with_other_symbol(batch, slot, rng, first, count, avoid_present)
        pending, tokens = torch.arange(len(batch)), batch.tokens.clone()
        for _ in range(MOST_REDRAWS):
            drawn = self._with_other_symbol(batch[pending], slot, rng, first, count, avoid_present)
            tokens[pending] = drawn.tokens
            pending = pending[~self.answer_changes(drawn)]
            if len(pending) == 0:
                return replace(batch, tokens=tokens)
        raise UserError(
            f"change_answer: {len(pending)} of {len(batch)} documents keep their answer whatever stands at {slot!r};"
            " `answer_changes` says which a corruption left as they were"
        )

    @property
    def counterfactuals(self) -> tuple[str, ...]:
        """Kinds of counterfactual documents whose answer is known, which `alter` makes; none by default."""
        return ()

    def counterfactual(self, kind: str, batch: Batch, rng: torch.Generator) -> Batch:
        """The same documents, with one query each, changed to valid ones with another answer, which the targets say.

        `labels["changed"]` is 1 where that was possible and 0 where the document is as it was. Roles stay the places
        of the original, so that both documents can be patched at the same ones.
        """
        if kind not in self.counterfactuals:
            raise UnknownName("counterfactual", kind, self.counterfactuals)
        positions, answers = batch.answers()
        change = self.alter(kind, batch, rng)
        changed = change.possible & (change.answers != answers)
        tokens = change.tokens.where(changed[:, None], batch.tokens)
        answers = change.answers.where(changed, answers)
        targets = batch.targets.scatter(1, positions[:, None], answers[:, None])
        return Batch(tokens, targets, batch.roles, {**batch.labels, "changed": changed.long()})

    def alter(self, kind: str, batch: Batch, rng: torch.Generator) -> Change:
        """What `counterfactual` makes of documents: predicted from how they are changed, not read by `solve`."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to make the counterfactual {kind!r}")

    def variants(self) -> "Mapping[str, Task]":
        """The same task with documents of another size, by what is other about them, over the same symbols: to see
        whether what a model has learned holds there too. None by default."""
        return {}

    def ambiguous(self, batch: Batch) -> Tensor:
        """[n] whether a document could also mean another answer, so that no model can know; none by default."""
        return torch.zeros(len(batch), dtype=torch.bool)

    def states(self, batch: Batch) -> Mapping[str, Tensor]:
        """Name to [n, t] what there is to know at each position, such as the state of an automaton; none by default."""
        return {}

    def guessing(self) -> float:
        """The best accuracy that is had without solving the task; what a model has to beat to show anything."""
        from mixerscope.tasks.baselines import best_guess  # which imports this module

        return best_guess(self)

    def answer_changes(self, batch: Batch) -> Tensor:
        """[n] whether a corrupted document no longer has the answer to its first query that its targets say."""
        return self.read_answers(batch)[:, 0] != batch.scored()[1][:, 0]

    def read_answers(self, batch: Batch) -> Tensor:
        """What `solve` finds, also in a document that `corrupt` has made and `sample` never would."""
        return self.solve(batch)

    @staticmethod
    def _with_other_symbol(
        batch: Batch, slot: str, rng: torch.Generator, first: int, count: int, avoid_present: bool
    ) -> Batch:
        at = batch.role(slot)[:, None]
        drawn = other_symbol(batch.tokens.gather(1, at)[:, 0], first, count, rng)
        if avoid_present:
            drawn = redraw_present(batch.tokens, drawn, first, count, rng)
        return replace(batch, tokens=batch.tokens.scatter(1, at, drawn[:, None]))


def split_generator(rng: torch.Generator, split: Split) -> torch.Generator:
    """The generator to draw a split's documents from, so that the same seed gives other documents in each split."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if split == "train":
        return rng
    return stream(int(torch.randint(2**62, (1,), generator=rng)), "split", split)


def other_symbol(original: Tensor, first: int, count: int, rng: torch.Generator) -> Tensor:
    """[n] tokens uniform over [first, first + count) without the original one."""
    inside = (original >= first) & (original < first + count)
    draw = torch.rand(original.shape, generator=rng)
    index = (draw * (count - inside.to(draw.dtype))).long()
    return first + index + (inside & (index >= original - first)).long()


def redraw_present(tokens: Tensor, drawn: Tensor, first: int, count: int, rng: torch.Generator) -> Tensor:
    """`drawn`, with symbols that stand in their document replaced by uniform ones of the class that do not."""
    free = absent(tokens, first, count)
    if not bool(free.any(1).all()):
        raise UserError(f"avoid_present: some documents already hold all {count} symbols of the class")
    present = ~free.gather(1, (drawn - first)[:, None])[:, 0]
    if bool(present.any()):
        weights = free[present].to(torch.float32)
        drawn = drawn.clone()
        drawn[present] = first + torch.multinomial(weights, 1, generator=rng)[:, 0]
    return drawn


def absent(tokens: Tensor, first: int, count: int) -> Tensor:
    """[n, count] which symbols of the class [first, first + count) do not stand in a document."""
    at = tokens - first
    of_class = (at >= 0) & (at < count)
    # Tokens of other classes are sent to a spare column that is cut off again.
    free = torch.ones(len(tokens), count + 1, dtype=torch.bool)
    free.scatter_(1, at.where(of_class, torch.full_like(at, count)), False)
    return free[:, :count]


def any_of(mask: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """[n, 1] a uniform column where the mask holds, and [n] whether it holds anywhere in the row."""
    return (torch.rand(mask.shape, generator=rng) + mask).argmax(1, keepdim=True), mask.any(1)


def distinct_rows(n: int, count: int, of: int, rng: torch.Generator) -> Tensor:
    """[n, count] ids below `of`, distinct within each row, uniform over all ordered choices."""
    if count * (count - 1) / 2 > 2 * of:  # rejection would repeat often; sort random keys, some rows at a time
        chunk = max(1, 2**22 // of)
        parts = [
            torch.rand(min(chunk, n - start), of, generator=rng).argsort(1)[:, :count] for start in range(0, n, chunk)
        ]
        return torch.cat(parts) if parts else torch.empty(0, count, dtype=torch.int64)
    rows = torch.randint(of, (n, count), generator=rng)
    while True:
        ordered = rows.sort(1).values
        clash = (ordered[:, 1:] == ordered[:, :-1]).any(1).nonzero()[:, 0]
        if len(clash) == 0:
            return rows
        rows[clash] = torch.randint(of, (len(clash), count), generator=rng)


def join(batches: Sequence[Batch]) -> Batch:
    """One batch of all documents, padded on the right to the longest."""
    width = max(batch.tokens.shape[1] for batch in batches)

    def wide(tensors: list[Tensor], fill: int) -> Tensor:
        if tensors[0].dim() == 1:
            return torch.cat(tensors)
        joined = torch.full((sum(map(len, tensors)), width), fill, dtype=tensors[0].dtype)
        start = 0
        for tensor in tensors:
            joined[start : start + len(tensor), : tensor.shape[1]] = tensor
            start += len(tensor)
        return joined

    first = batches[0]
    return Batch(
        wide([batch.tokens for batch in batches], PAD),
        wide([batch.targets for batch in batches], UNSCORED),
        {name: wide([batch.roles[name] for batch in batches], 0) for name in first.roles},
        {name: wide([batch.labels[name] for batch in batches], -1) for name in first.labels},
    )


def collect(n: int, draw: Callable[[int], tuple[Batch, int]], chunk: int, why: Callable[[], str]) -> Batch:
    """n documents from a sampler that rejects some: `draw(m)` returns the usable ones and how many of m those are.

    Draws that are usable but not wanted (they belong to another split) count as usable and are simply not in the batch.
    """
    parts: list[Batch] = []
    have = tried = usable = 0
    while have < n or not parts:
        # The share kept so far says how many to draw for the rest; a few more spare most of the last rounds.
        missing = (n - have) * max(1.0, tried / have if have else 1.0)
        size = max(16, min(chunk, int(1.1 * missing) + 1))
        batch, good = draw(size)
        tried, usable, have = tried + size, usable + good, have + len(batch)
        if tried >= TRIED_BEFORE_STOPPING and usable < LEAST_ACCEPTED * tried:
            raise UserError(f"only {usable} of {tried} drawn documents can be used: {why()}")
        if tried >= TRIED_BEFORE_STOPPING and have < LEAST_KEPT * tried:
            raise UserError(f"only {have} of {tried} drawn documents belong to this split; draw without `disjoint`")
        parts.append(batch)
    return join(parts)[:n]

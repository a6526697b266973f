"""The frozen set of (original, corrupted) documents that serves every cell, every seed and every architecture."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from pydantic import Field, field_validator
from torch import Tensor

from mixerscope.artifacts.effects import JOINT, Mechanism
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.reads import ANSWER, OF_COUNTERFACTUAL, SCORED, Reads
from mixerscope.randomness import stream
from mixerscope.showing import Shown, counted
from mixerscope.spec import Spec
from mixerscope.tasks import UNSCORED, Batch, Symbols, Task
from mixerscope.tasks.base import ROLE_NAME, Split

_ROLE = re.compile(rf"(?P<name>{ROLE_NAME.pattern})(?P<offset>[+-]\d+)?")
_POSITION = re.compile(r"pos:(?P<position>\d+)")


class PairSettings(Spec):
    """Which counterfactual documents are made, and how many."""

    documents: int = Field(default=320, gt=0, le=10**6)
    """Documents that are measured, the same ones for every cell, seed and architecture."""
    slots: tuple[str, ...] = ()
    """Which tokens of the document are changed, one at a time; left out, the first slot of the task."""
    symbols: Symbols = "slot-class"
    """What the changed token becomes: a symbol of the slot's own class, so that the document stays one of the task's,
    or of the query's class (as published)."""
    avoid_present: bool = False
    """Whether the new symbol must be absent from the document."""
    reads: tuple[str, ...] = (ANSWER,)
    """Where effects are measured: `answer`; a scored place such as `pos:7` or `query+1`; `scored`, every one that is;
    `counterfactual:value`, the answer that corrupting the value makes true. Verdicts look at the first. Documents ask
    one thing each, unless a place or `scored` is among these: then all that the task asks."""

    @field_validator("slots", "reads")
    @classmethod
    def _each_once(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        return each_once(named)

    @field_validator("reads")
    @classmethod
    def _some(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        if not named:
            raise ValueError(f"name at least one, such as {ANSWER!r}")
        return named

    def for_task(self, task: Task) -> Self:
        """The same settings, one way of writing them: what the task has anyway is left out."""
        for slot in self.slots:
            if slot not in task.slots:
                raise UserError(f"this task has no slot {slot!r}, only {', '.join(task.slots)}")
        return self.changed(slots=()) if self.slots == task.slots[:1] else self


def each_once(named: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(named)) < len(named):
        raise ValueError(f"each is named once, got {', '.join(named)}")
    return named


@dataclass(frozen=True, repr=False)
class Pairs(Shown):
    """Documents, with one query each unless reads ask for more, and for each slot the same documents with the token at
    that slot changed."""

    original: Batch
    corrupted: Mapping[str, Batch]
    """By slot; targets stay those of the original."""
    asked: Reads | None = None
    """Where effects are measured; left out, the one answer of each document."""
    slots: tuple[str, ...] = ()
    """Those to patch; left out, all. The others are corrupted only to see whether the model reads them."""
    mechanisms: tuple[Mechanism, ...] = ()
    together: tuple[str, ...] = ()
    """What the task says of routes and slots; see `Task`."""
    task: Task | None = None
    """The task of the documents, where they are one's."""
    data_seed: int = 0
    """With which they were drawn."""

    def sentence(self) -> str:
        """One line for people."""
        of = "" if self.task is None else f" of {self.task!r}"
        return f"{counted(len(self), 'document')}{of}, corrupted at {', '.join(self.corrupted)}"

    def shown(self) -> Iterator[dict[str, str]]:
        """The rows that a notebook shows."""
        named = str if self.task is None else self.task.symbol
        for at in range(min(len(self), 3)):
            for name, batch in {"original": self.original, **self.corrupted}.items():
                said = name if batch is self.original else f"{name} corrupted"
                yield {"document": str(at), "": said, "tokens": " ".join(named(t) for t in batch.tokens[at].tolist())}

    @cached_property
    def reads(self) -> Reads:
        """Where effects are measured."""
        return Reads.answer(self.original) if self.asked is None else self.asked

    @property
    def patched(self) -> tuple[str, ...]:
        """Slots that a grid covers."""
        return self.slots or tuple(self.corrupted)

    def __len__(self) -> int:
        return len(self.original)

    def chunks(self, size: int) -> Iterator["Pairs"]:
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield replace(
                self,
                original=self.original[part],
                corrupted={slot: batch[part] for slot, batch in self.corrupted.items()},
                asked=self.reads.rows(part),
            )

    def to(self, device: torch.device) -> "Pairs":
        """The same pairs on a device."""
        return replace(
            self,
            original=self.original.to(device),
            corrupted={slot: batch.to(device) for slot, batch in self.corrupted.items()},
            asked=self.reads.to(device),
        )

    def places(self, role: str) -> Tensor:
        """[n, p] positions of a role, or of several joined such as `key&value+1`."""
        parts = role.split(JOINT)
        if len(set(parts)) < len(parts):
            raise UserError(f"role {role!r} names a position twice")
        return torch.stack([self.positions(part) for part in parts], 1)

    def positions(self, role: str) -> Tensor:
        """[n] positions of one role, of an offset from one such as `key+2`, or of `pos:7` in every document."""
        return role_positions(self.original, role)

    def sha256(self) -> str:
        sha = hashlib.sha256(self.original.sha256().encode())
        for slot, batch in sorted(self.corrupted.items()):
            sha.update(f"{slot}{batch.sha256()}".encode())
        if self.reads.names != (ANSWER,):
            sha.update("".join(self.reads.names).encode())
            sha.update(torch.stack([self.reads.positions, self.reads.targets]).cpu().numpy().tobytes())
        return sha.hexdigest()


def role_positions(batch: Batch, role: str) -> Tensor:
    """[n] positions of one role, of an offset from one such as `key+2`, or of `pos:7` in every document."""
    length = batch.tokens.shape[1]
    explicit, match = _POSITION.fullmatch(role), _ROLE.fullmatch(role)
    if explicit is not None:
        at = torch.full((len(batch),), int(explicit["position"]), device=batch.tokens.device)
    elif match is not None:
        at = batch.role(match["name"]) + int(match["offset"] or 0)
    else:
        raise UserError(f"{role!r} is not a role; write a name such as 'key', an offset such as 'key+2', or 'pos:7'")
    outside = int(((at < 0) | (at >= length)).sum())
    if outside:
        raise UserError(f"role {role!r} lies outside the document in {outside} of {len(batch)} documents")
    return at


def make_pairs(task: Task, settings: PairSettings | None = None, data_seed: int = 0, split: Split = "test") -> Pairs:
    """The pairs of a task: the same ones for the same task, settings, seed and split."""
    settings = PairSettings() if settings is None else settings
    whole, task = task, task.single_query()
    at_places = any(name != ANSWER and not name.startswith(OF_COUNTERFACTUAL) for name in settings.reads)
    asking = whole if at_places else task
    original = asking.sample(settings.documents, stream(data_seed, "pairs"), split)
    slots = settings.slots or task.slots[:1]
    corrupted: dict[str, Batch] = {}
    for slot in slots:
        if slot not in task.slots:
            raise UnknownName("slot", slot, task.slots)
        rng = stream(data_seed, "corrupt", slot)
        corrupted[slot] = task.corrupt(original, slot, rng, settings.symbols, settings.avoid_present)
    for slot in task.together:
        if slot in task.slots and slot not in slots:
            corrupted[slot] = task.corrupt(original, slot, stream(data_seed, "corrupt", slot), "slot-class")
    for slot, batch in corrupted.items():
        if not bool(((batch.tokens != original.tokens).sum(1) == 1).all()):
            raise UserError(
                f"corrupting {slot!r} must change one token of every document, and one only; `mixerscope check` on the"
                " task says more"
            )
    became = {slot: _by_position(original, asking.read_answers(batch)) for slot, batch in corrupted.items()}
    reads = named_reads(original, became, settings.reads)
    return Pairs(original, corrupted, reads, slots, task.mechanisms, task.together, task, data_seed)


def _by_position(original: Batch, answers: Tensor) -> Tensor:
    """[n, t] what documents answer [n, q] where the original is asked; `UNSCORED` where it is not."""
    positions, targets = original.scored()
    # A document that is asked less often than others has spare answers, for a column that is cut off again.
    length = original.tokens.shape[1]
    columns = positions.where(targets != UNSCORED, length)
    return targets.new_full((len(original), length + 1), UNSCORED).scatter(1, columns, answers)[:, :-1]


def named_reads(original: Batch, became: Mapping[str, Tensor], names: tuple[str, ...]) -> Reads:
    """The reads with these names (see `PairSettings.reads`), given by slot what corrupting makes true [n, t]."""
    found: list[Reads] = []
    for name in names:
        if name == ANSWER:
            found.append(Reads.answer(original))
        elif name == SCORED:
            found.append(Reads.scored(original))
        elif name.startswith(OF_COUNTERFACTUAL):
            slot = name.removeprefix(OF_COUNTERFACTUAL)
            if slot not in became:
                raise UnknownName("slot that is corrupted", slot, became)
            found.append(Reads.answer(original).of_counterfactual(name, became[slot]))
        else:
            found.append(Reads.at(original, {name: role_positions(original, name)}))
    reads = Reads.joined(found)
    for slot, answers in became.items():
        reads = reads.compared_with(slot, answers, original)
    return reads

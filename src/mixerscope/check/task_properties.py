"""What every task promises, one function each; what is measured is said in a clause."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from mixerscope.check.outcome import PropertyViolated, demand
from mixerscope.randomness import global_states, scrambled, stream
from mixerscope.spec.base import one_sentence, parse
from mixerscope.tasks.base import PAD, SPLITS, SYMBOLS, UNSCORED, Batch, Split, Task

DOCUMENTS = 200
PARSED = 50
"""Documents in which second meanings are looked for; a chart parser takes its time."""


@dataclass(frozen=True)
class TaskSubject:
    """A task class with the settings it is tried with."""

    cls: type[Task]
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields that differ from the defaults."""

    @cached_property
    def task(self) -> Task:
        return parse(self.cls, dict(self.given))

    @cached_property
    def single(self) -> Task:
        return self.task.single_query()

    def sample(self, split: Split = "train", seed: int = 0, n: int = DOCUMENTS) -> Batch:
        return self.task.sample(n, stream(seed, "check", "documents"), split)

    @cached_property
    def asked_once(self) -> Batch:
        """Documents with one query each."""
        return self.single.sample(DOCUMENTS, stream(0, "check", "single query"))


def constructed(subject: TaskSubject) -> str:
    """The task can be built; without that nothing else can be tried."""
    task = subject.task
    return f"{task.vocab_size:,} tokens in the vocabulary, {task.max_length} in the longest document"


def settings(subject: TaskSubject) -> str:
    """Defaults are values their fields would take, and settings written as JSON and read again are the same."""
    task, cls = subject.task, subject.cls
    try:
        again = task.changed()
        demand(again == task, "its own settings, validated again, make another task")
        text = task.model_dump_json(warnings="error")
        demand(cls.model_validate_json(text) == task, f"written as JSON and read again it is another task: {text}")
    except ValidationError as error:
        raise PropertyViolated(f"its own settings are refused: {one_sentence(error)}") from error
    needed = [name for name, field in cls.model_fields.items() if field.is_required()]
    without = f", no default for {', '.join(needed)}" if needed else ", each with a default"
    return f"{len(cls.model_fields)} fields{without if cls.model_fields else ''}"


def presets(subject: TaskSubject) -> str:
    """Every preset can be built and gives documents."""
    for name in subject.cls.presets:
        try:
            task = subject.cls.preset(name)
        except ValidationError as error:
            raise PropertyViolated(f"preset {name!r} is refused: {one_sentence(error)}") from error
        demand(len(task.sample(2, stream(0, "check", "preset"))) == 2, f"preset {name!r} does not give 2 documents")
    return ", ".join(subject.cls.presets) or "none"


def documents(subject: TaskSubject) -> str:
    """As many documents as asked for, no longer than said, of tokens of the vocabulary, each with something asked."""
    task, longest = subject.task, 0
    for split in SPLITS:
        batch = subject.sample(split)
        demand(len(batch) == DOCUMENTS, f"{DOCUMENTS} documents of {split} were asked for, {len(batch)} came")
        for what, found in (("tokens", batch.tokens), ("targets", batch.targets)):
            shape = list(found.shape)
            demand(found.dtype == torch.int64, f"{what} are {found.dtype}, expected torch.int64")
            demand(shape == list(batch.tokens.shape) and len(shape) == 2, f"{what} have the shape {shape}")
            outside = (found < 0) | (found >= task.vocab_size)
            outside &= found != UNSCORED if what == "targets" else True
            demand(not outside.any(), f"{what} outside the vocabulary of {task.vocab_size} {_in(outside.any(1))}")
        longest = max(longest, batch.tokens.shape[1])
        demand(longest <= task.max_length, f"a document has {longest} tokens, max_length is {task.max_length}")
        silent = (batch.targets == UNSCORED).all(1)
        demand(not silent.any(), f"nothing is asked {_in(silent)}")
    return f"{len(SPLITS)} times {DOCUMENTS}, at most {longest} tokens"


def well_posed(subject: TaskSubject) -> str:
    """The solver finds the targets in every split, from what stands up to the last question alone."""
    task = subject.task
    for split in SPLITS:
        batch = subject.sample(split)
        expected = batch.scored()[1]
        _same_answers(task.solve(batch), expected, f"the solver and the targets of {split} differ")
        _same_answers(task.solve(_unanswered(batch)), expected, "the solver reads the answers instead of finding them")
    some = subject.sample("test", n=PARSED)
    ambiguous = task.ambiguous(some)
    demand(list(ambiguous.shape) == [PARSED], f"`ambiguous` gives {list(ambiguous.shape)} for {PARSED} documents")
    share = float(ambiguous.double().mean())
    return f"{len(SPLITS)} times {DOCUMENTS} documents; {share:.0%} of {PARSED} could mean another answer"


def repeatable(subject: TaskSubject) -> str:
    """The same generator gives the same bytes, another seed other documents."""
    for split in SPLITS:
        with scrambled(0):  # what depends on global state is found elsewhere
            first = fingerprint(subject.sample(split))
        with scrambled(0):
            again = fingerprint(subject.sample(split))
        demand(first == again, f"the same generator gives other documents of {split} the second time")
        with scrambled(0):
            other = fingerprint(subject.sample(split, seed=1))
        demand(first != other, f"two seeds give the same documents of {split}")
    return "every split, labels included"


def random_state(subject: TaskSubject) -> str:
    """Sampling and corrupting neither read nor change the global generators."""

    def made() -> list[str]:
        batches = [subject.sample(split) for split in SPLITS]
        single = subject.single.sample(DOCUMENTS, stream(0, "check", "single query"))
        for slot in subject.single.slots:
            batches.append(subject.single.corrupt(single, slot, stream(0, "check", slot)))
        return [fingerprint(batch) for batch in batches]

    found = []
    for seed in (0, 0, 1):
        with scrambled(seed):
            before = global_states()
            found.append(made())
            touched = [name for name, a, b in zip(("torch", "numpy", "random"), before, global_states()) if a != b]
        demand(not touched, f"it draws from the global generator of {' and '.join(touched)}")
    # What is not the same with everything the same is not repeatable, which is another property.
    demand(found[0] != found[1] or found[1] == found[2], "its documents depend on a global generator")
    return "torch, numpy and random left alone"


def splits(subject: TaskSubject) -> str:
    """Where the task says that its splits are disjoint, no document is in two of them."""
    if getattr(subject.task, "disjoint", False) is not True:
        return "not said to be disjoint"
    found = {split: {tuple(row) for row in _rows(subject.sample(split))} for split in SPLITS}
    for here, there in combinations(SPLITS, 2):
        shared = len(found[here] & found[there])
        demand(shared == 0, f"{shared} documents are in {here} and in {there}")
    return f"disjoint in {len(SPLITS)} times {DOCUMENTS} documents"


def roles(subject: TaskSubject) -> str:
    """Roles lie inside their documents, no two of them always at the same place, and every slot is one."""
    batch = subject.asked_once
    at = torch.arange(batch.tokens.shape[1])
    meant = (batch.tokens != PAD) | (batch.targets != UNSCORED)
    end = torch.where(meant, at, 0).amax(1)
    for name, place in batch.roles.items():
        demand(list(place.shape) == [len(batch)], f"role {name!r} has the shape {list(place.shape)}")
        outside = (place < 0) | (place > end)
        demand(not outside.any(), f"role {name!r} lies outside the document {_in(outside)}")
    for one, other in combinations(batch.roles, 2):
        apart = batch.roles[one] != batch.roles[other]
        demand(bool(apart.any()), f"roles {one!r} and {other!r} are at the same place in all {len(batch)} documents")
    for slot in subject.single.slots:
        demand(slot in batch.roles, f"slot {slot!r} is not among the roles: {', '.join(batch.roles) or 'none'}")
    return ", ".join(batch.roles) or "none"


def single_query(subject: TaskSubject) -> str:
    """`single_query` asks one thing in each document, in the same vocabulary."""
    single, batch = subject.single, subject.asked_once
    scored = (batch.targets != UNSCORED).sum(1)
    demand(bool((scored == 1).all()), f"`single_query` asks {int(scored.max())} things {_in(scored != 1)}")
    size, whole = single.vocab_size, subject.task.vocab_size
    demand(size == whole, f"the vocabulary has {size} tokens with a single query and {whole} without")
    return "one scored position in each document"


def corruption(subject: TaskSubject) -> str:
    """Corrupting a slot changes the token there to another of the class, and nothing else."""
    task, batch = subject.single, subject.asked_once
    before = fingerprint(batch)
    for slot in task.slots:
        for symbols in SYMBOLS:
            other = task.corrupt(batch, slot, stream(0, "check", "corrupt", slot), symbols)
            demand(fingerprint(batch) == before, f"corrupting {slot!r} changes the documents it is given")
            changed = other.tokens != batch.tokens
            here = torch.zeros_like(changed).scatter(1, batch.role(slot)[:, None], True)
            demand(bool((changed & here).any(1).all()), f"{slot!r} is as it was {_in(~(changed & here).any(1))}")
            demand(not (changed & ~here).any(), f"corrupting {slot!r} changes more {_in((changed & ~here).any(1))}")
            as_before = fingerprint(replace(other, tokens=batch.tokens)) == before
            demand(as_before, f"corrupting {slot!r} changes targets, roles or labels")
            first, count = task.symbol_class(slot, symbols)
            outside = (other.tokens < first) | (other.tokens >= first + count)
            demand(not (outside & here).any(), f"{slot!r} is not of its class {_in((outside & here).any(1))}")
            if symbols == "slot-class":
                foreign = here & ((batch.tokens < first) | (batch.tokens >= first + count))
                demand(not foreign.any(), f"what stands at {slot!r} is not of the slot's class {_in(foreign.any(1))}")
    return ", ".join(task.slots) or "no slots, so nothing can be patched"


def avoid_present(subject: TaskSubject) -> str:
    """With `avoid_present` the new token stands nowhere else in the document."""
    task, tried = subject.single, []
    for slot in task.slots:
        first, count = task.symbol_class(slot, "query-class")
        # Where a document holds the whole class there is nothing to draw, and `corrupt` says so.
        room = [len(_of_class(row, first, count)) < count for row in subject.asked_once.tokens]
        batch = subject.asked_once[torch.tensor(room)]
        if len(batch) == 0:
            continue
        before = batch.tokens.clone()
        other = task.corrupt(batch, slot, stream(0, "check", "avoid", slot), avoid_present=True)
        present = (before == other.tokens.gather(1, batch.role(slot)[:, None])).any(1)
        demand(not present.any(), f"the new symbol at {slot!r} was in the document already {_in(present)}")
        tried.append(slot)
    return ", ".join(tried) or "no document has room for another symbol"


def counterfactuals(subject: TaskSubject) -> str:
    """The solver finds the new answer in every document that was changed; the others are as they were, and say so."""
    task, batch, said = subject.single, subject.asked_once, []
    before, answers = fingerprint(batch), batch.scored()[1]
    for kind in task.counterfactuals:
        made = []
        for seed in (0, 1):
            with scrambled(seed):
                state = global_states()
                made.append(task.counterfactual(kind, batch, stream(0, "check", "counterfactual", kind)))
                left_alone = global_states() == state
            demand(left_alone, f"counterfactual {kind!r} draws from a global generator")
        other = made[0]
        demand(fingerprint(other) == fingerprint(made[1]), f"the same generator makes another {kind!r} the second time")
        demand(fingerprint(batch) == before, f"counterfactual {kind!r} changes the documents it is given")
        demand("changed" in other.labels, f"counterfactual {kind!r} has no label 'changed'")
        kept = {name: label for name, label in other.labels.items() if name != "changed"}
        as_before = fingerprint(Batch(batch.tokens, batch.targets, other.roles, kept)) == before
        demand(as_before, f"counterfactual {kind!r} changes roles or labels")
        elsewhere = (other.targets == UNSCORED) != (batch.targets == UNSCORED)
        demand(not elsewhere.any(), f"counterfactual {kind!r} asks elsewhere {_in(elsewhere.any(1))}")
        changed = other.labels["changed"].bool()
        demand(bool(changed.any()), f"counterfactual {kind!r} changes none of {len(batch)} documents")
        silent = (other.tokens != batch.tokens).any(1) != changed
        demand(not silent.any(), f"'changed' does not say what counterfactual {kind!r} did {_in(silent)}")
        same = (other.scored()[1] == answers).all(1) == changed
        demand(not same.any(), f"counterfactual {kind!r} has not another answer where it is changed {_in(same)}")
        outside = (other.tokens < 0) | (other.tokens >= task.vocab_size)
        demand(not outside.any(), f"counterfactual {kind!r} leaves the vocabulary {_in(outside.any(1))}")
        found = task.solve(_unanswered(other))
        _same_answers(found, other.scored()[1], f"the solver and the targets of counterfactual {kind!r} differ")
        said.append(f"{kind} in {float(changed.double().mean()):.0%}")
    return ", ".join(said) or "none declared"


def states(subject: TaskSubject) -> str:
    """State labels are whole numbers, one for each position."""
    batch = subject.asked_once
    found = subject.single.states(batch)
    for name, labels in found.items():
        shape, expected = list(labels.shape), list(batch.tokens.shape)
        demand(shape == expected, f"state {name!r} has the shape {shape}, the documents {expected}")
        demand(labels.dtype == torch.int64, f"state {name!r} is {labels.dtype}, expected torch.int64")
    return ", ".join(found) or "none declared"


def fingerprint(batch: Batch) -> str:
    """Hash of everything in a batch, labels included."""
    labels = {f"label {name}": label for name, label in batch.labels.items()}
    return replace(batch, roles={**batch.roles, **labels}).sha256()


def _unanswered(batch: Batch) -> Batch:
    """The same questions without the answers: neither in the targets nor behind the last question."""
    scored = batch.targets != UNSCORED
    at = torch.arange(batch.tokens.shape[1])
    last = torch.where(scored, at, -1).amax(1, keepdim=True)
    tokens = batch.tokens.where(at <= last, PAD)
    return replace(batch, tokens=tokens, targets=torch.where(scored, PAD, UNSCORED))


def _same_answers(found: Tensor, expected: Tensor, otherwise: str) -> None:
    demand(found.shape == expected.shape, f"`solve` gives {list(found.shape)}, asked are {list(expected.shape)}")
    wrong = (found != expected).any(1)
    demand(not wrong.any(), f"{otherwise} {_in(wrong)}")


def _in(bad: Tensor) -> str:
    return f"in {int(bad.sum())} of {len(bad)} documents"


def _of_class(row: Tensor, first: int, count: int) -> set[int]:
    return {token for token in row.tolist() if first <= token < first + count}


def _rows(batch: Batch) -> list[list[int]]:
    """Documents without the padding, which is as long as the longest of its batch needs."""
    rows = batch.tokens.tolist()
    for row in rows:
        while row and row[-1] == PAD:
            row.pop()
    return rows

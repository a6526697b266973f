"""What every task promises of its documents, one function each; what is measured is said in a clause."""

from itertools import combinations

import torch
from pydantic import ValidationError

from mixerscope.check.outcome import PropertyViolated, demand
from mixerscope.check.task_subject import DOCUMENTS, TaskSubject, counted, fingerprint, same_answers, unanswered, untold
from mixerscope.randomness import global_states, scrambled, stream
from mixerscope.spec.base import one_sentence
from mixerscope.tasks.base import PAD, ROLE_NAME, SPLITS, UNSCORED, Batch

PARSED = 50
"""Documents in which second meanings are looked for; a chart parser takes its time."""


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
            demand(not outside.any(), f"{what} outside the vocabulary of {task.vocab_size} {counted(outside.any(1))}")
        for name, found in batch.labels.items():
            demand(len(found) == len(batch), f"label {name!r} is about {len(found)} documents of {len(batch)}")
        longest = max(longest, batch.tokens.shape[1])
        demand(longest <= task.max_length, f"a document has {longest} tokens, max_length is {task.max_length}")
        silent = (batch.targets == UNSCORED).all(1)
        demand(not silent.any(), f"nothing is asked {counted(silent)}")
    return f"{len(SPLITS)} times {DOCUMENTS}, at most {longest} tokens"


def well_posed(subject: TaskSubject) -> str:
    """The solver finds the targets in every split, from what stands up to the last question alone."""
    task = subject.task
    for split in SPLITS:
        batch = subject.sample(split)
        expected = batch.scored()[1]
        same_answers(task.solve(batch), expected, f"the solver and the targets of {split} differ")
        same_answers(task.solve(unanswered(batch)), expected, "the solver reads the answers instead of finding them")
        told = "the solver reads roles or labels, which say how a document was made: they differ without these"
        same_answers(task.solve(untold(batch)), expected, told)
    some = subject.sample("test", n=PARSED)
    backwards = torch.arange(PARSED).flip(0)
    found = task.solve(some[backwards])[backwards]
    same_answers(found, some.scored()[1], "the answers depend on the other documents of a batch: reversed, they differ")
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
    for slot in subject.single.slots:
        made = []
        for _ in range(2):
            with scrambled(0):
                batch = subject.single.sample(DOCUMENTS, stream(0, "check", "single query"))
                made.append(fingerprint(subject.single.corrupt(batch, slot, stream(0, "check", "again", slot))))
        demand(made[0] == made[1], f"the same generator corrupts {slot!r} in another way the second time")
    return "every split, labels included, and what is made of them"


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
        demand(place.dtype == torch.int64, f"role {name!r} is {place.dtype}, expected torch.int64")
        outside = (place < 0) | (place > end)
        demand(not outside.any(), f"role {name!r} lies outside the document {counted(outside)}")
        demand(ROLE_NAME.fullmatch(name) is not None, f"role {name!r} is no name: letters, digits and _ make one")
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
    demand(bool((scored == 1).all()), f"`single_query` asks {int(scored.max())} things {counted(scored != 1)}")
    size, whole = single.vocab_size, subject.task.vocab_size
    demand(size == whole, f"the vocabulary has {size} tokens with a single query and {whole} without")
    length, longest = batch.tokens.shape[1], subject.task.max_length
    fits = single == subject.task or length <= longest  # what it says of its own documents is another property
    demand(fits, f"a document with a single query has {length} tokens, max_length is {longest}")
    return "one scored position in each document"


def states(subject: TaskSubject) -> str:
    """State labels are whole numbers, one for each position."""
    batch = subject.asked_once
    found = subject.single.states(batch)
    for name, labels in found.items():
        shape, expected = list(labels.shape), list(batch.tokens.shape)
        demand(shape == expected, f"state {name!r} has the shape {shape}, the documents {expected}")
        demand(labels.dtype == torch.int64, f"state {name!r} is {labels.dtype}, expected torch.int64")
    return ", ".join(found) or "none declared"


def _rows(batch: Batch) -> list[list[int]]:
    """Documents without the padding, which is as long as the longest of its batch needs."""
    rows = batch.tokens.tolist()
    for row in rows:
        while row and row[-1] == PAD:
            row.pop()
    return rows

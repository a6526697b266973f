"""What every task promises of the documents it makes of others: corrupted ones and counterfactuals."""

from dataclasses import replace

import torch
from torch import Tensor

from mixerscope.check.outcome import demand
from mixerscope.check.task_subject import TaskSubject, counted, fingerprint, same_answers, unanswered, untold
from mixerscope.randomness import global_states, scrambled, stream
from mixerscope.tasks.base import SYMBOLS, UNSCORED, Batch


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
            demand(bool((changed & here).any(1).all()), f"{slot!r} is as it was {counted(~(changed & here).any(1))}")
            demand(not (changed & ~here).any(), f"corrupting {slot!r} changes more {counted((changed & ~here).any(1))}")
            as_before = fingerprint(replace(other, tokens=batch.tokens)) == before
            demand(as_before, f"corrupting {slot!r} changes targets, roles or labels")
            first, count = task.symbol_class(slot, symbols)
            outside = (other.tokens < first) | (other.tokens >= first + count)
            demand(not (outside & here).any(), f"{slot!r} is not of its class {counted((outside & here).any(1))}")
            within = first >= 0 and first + count <= task.vocab_size
            demand(within, f"the class of {slot!r}, {first} to {first + count - 1}, leaves the vocabulary")
            if symbols == "slot-class":
                foreign = here & ((batch.tokens < first) | (batch.tokens >= first + count))
                demand(
                    not foreign.any(), f"what stands at {slot!r} is not of the slot's class {counted(foreign.any(1))}"
                )
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
        demand(not present.any(), f"the new symbol at {slot!r} was in the document already {counted(present)}")
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
        demand(not elsewhere.any(), f"counterfactual {kind!r} asks elsewhere {counted(elsewhere.any(1))}")
        changed = other.labels["changed"].bool()
        demand(bool(changed.any()), f"counterfactual {kind!r} changes none of {len(batch)} documents")
        silent = (other.tokens != batch.tokens).any(1) != changed
        demand(not silent.any(), f"'changed' does not say what counterfactual {kind!r} did {counted(silent)}")
        same = (other.scored()[1] == answers).all(1) == changed
        demand(not same.any(), f"counterfactual {kind!r} has not another answer where it is changed {counted(same)}")
        outside = (other.tokens < 0) | (other.tokens >= task.vocab_size)
        demand(not outside.any(), f"counterfactual {kind!r} leaves the vocabulary {counted(outside.any(1))}")
        found = task.solve(untold(unanswered(other)))
        same_answers(found, other.scored()[1], f"the solver and the targets of counterfactual {kind!r} differ")
        said.append(f"{kind} in {float(changed.double().mean()):.0%}")
    return ", ".join(said) or "none declared"


def _of_class(row: Tensor, first: int, count: int) -> set[int]:
    return {token for token in row.tolist() if first <= token < first + count}

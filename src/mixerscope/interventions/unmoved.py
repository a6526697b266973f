"""Which documents are answered whatever stands at a slot: their answer needs no route of it.

A model that finds no match for what is asked says something all the same, and now and then it is right. So an answer
that survives the corruption of its key may be luck, in a model that reads the key. It is not where other tokens leave
it, too, and hardly move it even in a document where another key matches, so that nothing has to be guessed.
"""

import torch
from torch import Tensor

from mixerscope.artifacts.effects import half
from mixerscope.artifacts.proof import Unmoved
from mixerscope.errors import UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.asks import also_elsewhere
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.programs import Program, runner_of
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.tasks import UNSCORED, Batch, Task
from mixerscope.training.objective import answer_correct

OTHERS = 4
"""Tokens that are tried at a slot, beside the one that was patched, where the answer did not go with that."""


def unmoved_by(members: Members, pairs: Pairs, batch_documents: int) -> list[list[Unmoved]]:
    """By model, a record for each slot that was patched; none where nobody knows what else may stand there."""
    if pairs.task is None or pairs.original.scored()[0].shape[1] != 1:
        return [[] for _ in members.models]
    found: list[list[Unmoved]] = [[] for _ in members.models]
    for slot in pairs.patched:
        rng = stream(pairs.data_seed, "proof", "others", slot)
        right, stays, moved = _compared(members, pairs.original, pairs.corrupted[slot], batch_documents).unbind(1)
        right, stays = right > 0, (right > 0) & (stays > 0)
        others = pairs.reads.others[slot][:, 0].cpu() if slot in pairs.reads.others else None
        has_answer = torch.zeros(len(pairs), dtype=torch.bool) if others is None else others != UNSCORED
        usual = torch.stack([of[lost].median() for of, lost in zip(moved, right & ~stays, strict=True)])
        moved = moved.where(~stays, 0)  # of the rest it is asked where something matches
        for _ in range(OTHERS):
            left = stays.any(0).nonzero()[:, 0]  # few, mostly
            if not len(left):
                break
            documents = pairs.original[left]
            other = with_another(pairs.task, documents, slot, rng)
            _, still, further = _compared(members, documents, other, batch_documents).unbind(1)
            stays[:, left] &= still > 0
            # A document that has no answer any more says nothing, unless there is another match.
            twice = also_elsewhere(pairs.task, documents, slot, rng)
            matched = torch.zeros_like(left) if twice is None else twice.labels["changed"]
            stays[:, left] &= has_answer[left] | (matched > 0)
            if twice is not None:
                once, own = with_another(pairs.task, twice, slot, rng), documents.answers()[1]
                further = _compared(members, twice, once, batch_documents, own)[:, 2]
            moved[:, left] = torch.maximum(moved[:, left], further)
        for own, answers, share in zip(found, stays, moved / usual[:, None], strict=True):
            own.append(Unmoved(slot, answers, half(share)))
    return found


def with_another(task: Task, batch: Batch, slot: str, rng: torch.Generator) -> Batch:
    """The documents with another token at a slot; one that they do not have, if there are such: a second key of its
    kind would also change what is known of the first."""
    try:
        return task.corrupt(batch, slot, rng, "slot-class", avoid_present=True)
    except UserError:
        return task.corrupt(batch, slot, rng, "slot-class")


def _compared(
    members: Members, batch: Batch, other: Batch, batch_documents: int, answers: Tensor | None = None
) -> Tensor:
    """[k, 3, n]: whether a document is answered rightly, whether the other one has the same answer, and by how much
    they differ in it: in how far the answer [n], the document's own if not given, is ahead of what the other document
    says, or would say next. What is said beside, of keys say, may move with anything."""
    device, answers = device_of(members.first), batch.answers()[1] if answers is None else answers
    size = batching(members.first, batch, batch_documents, len(members)).rows
    parts = [slice(start, start + size) for start in range(0, len(batch), size)]
    return torch.cat(
        [
            members.map(_both(batch[part].to(device), other[part].to(device), answers[part].to(device))).cpu()
            for part in parts
        ],
        -1,
    )


def _both(batch: Batch, other: Batch, answer: Tensor) -> Program:
    (read, _), tokens, of_answer = batch.answers(), other.tokens, answer[:, None]

    def program(model: Model | Adapted) -> Tensor:
        runner, at = runner_of(model), read[:, None]
        before, after = (runner.run(each, at, (), at).logits[:, 0] for each in (batch.tokens, tokens))
        against = after.scatter(1, of_answer, -torch.inf).argmax(1, keepdim=True)
        ahead, behind = ((each.gather(1, of_answer) - each.gather(1, against))[:, 0] for each in (before, after))
        right = [answer_correct(logits, answer).to(ahead.dtype) for logits in (before, after)]
        return torch.stack([*right, (ahead - behind).abs()])

    return program

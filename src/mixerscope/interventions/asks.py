"""Which block picks what is asked: ask something else, and what belonged to the question must not arrive any more.

A block that retrieves brings to the query what is asked and nothing else. One that copies the whole document there, for
a later block to pick from, brings the same value whatever is asked; key and value arrive there all the same, so that
no route shows it.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mixerscope.artifacts.effects import half
from mixerscope.artifacts.proof import Unasked
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.effects import Effects, counterfactual_or_runner_up
from mixerscope.interventions.members import Members
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import boundary_sites
from mixerscope.interventions.programs import Program
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.sites import Tap, edit, record
from mixerscope.tasks import Batch

QUERY = "query"
"""The counterfactual of a task that asks something else of the same document."""
ASKED_ELSE, BOTH = "another question", "both"


def unasked_at(members: Members, pairs: Pairs, batch_documents: int) -> list[list[Unasked]]:
    """By model, a record for each block; none where nothing else can be asked, or nothing belongs to the question."""
    sites, slot = boundary_sites(members.first)[1:], _belongs(pairs)
    asked_else = _asked_else(pairs)
    if len(sites) < 2 or slot is None or asked_else is None:
        return [[] for _ in members.models]
    changed = pairs.corrupted[slot]
    both = changed.tokens.where(changed.tokens != pairs.original.tokens, asked_else.tokens)
    documents = {slot: changed, ASKED_ELSE: asked_else, BOTH: replace(asked_else, tokens=both)}
    here = replace(pairs, corrupted=documents).to(device_of(members.first))
    rows = batching(members.first, here, batch_documents, len(members)).rows // len(sites)
    chunks = here.chunks(max(1, min(len(here), rows)))
    table = torch.cat([members.map(_behind_each(chunk, slot, sites)).cpu() for chunk in chunks], -1)
    return [
        [Unasked(slot, block, gap > 0, half(share), answered > 0) for block, (gap, share, answered) in enumerate(own)]
        for own in table.transpose(1, 2)  # [k, blocks, 3, n]
    ]


def _belongs(pairs: Pairs) -> str | None:
    """The slot whose token has to be brought to where the answer is read: the value."""
    read = pairs.reads.positions[:, 0]
    known = [slot for slot in pairs.together[1:] if slot in pairs.corrupted and slot in pairs.original.roles]
    return next((slot for slot in known if slot != QUERY and not torch.equal(pairs.original.roles[slot], read)), None)


def _asked_else(pairs: Pairs) -> Batch | None:
    """The documents with another question, one that they answer where the task knows how to ask it; of documents that
    ask several things, none."""
    if pairs.original.scored()[0].shape[1] != 1:
        return None
    if pairs.task is not None and QUERY in pairs.task.counterfactuals:
        return pairs.task.counterfactual(QUERY, pairs.original, stream(pairs.data_seed, "proof", ASKED_ELSE))
    if QUERY not in pairs.corrupted:
        return None
    batch = pairs.corrupted[QUERY]
    return replace(batch, labels={**batch.labels, "changed": torch.ones(len(batch), dtype=torch.int64)})


def _behind_each(pairs: Pairs, slot: str, sites: Sequence[str]) -> Program:
    """[3, sites, n]: whether the document counts; how far the answer comes back with what stands at the query, behind
    each block, of the slot while something else is asked; and whether it is right then."""
    clean, corrupted = pairs.original.tokens, pairs.corrupted[slot].tokens
    asked_else, both = pairs.corrupted[ASKED_ELSE], pairs.corrupted[BOTH].tokens
    possible = asked_else.labels["changed"] > 0
    read, targets = pairs.reads.positions[:, :1], pairs.reads.targets[:, :1]
    others = None if slot not in pairs.reads.others else pairs.reads.others[slot][:, :1]
    count = len(sites)

    def program(model: Model | Adapted) -> Tensor:
        def seen(tokens: Tensor) -> dict[str, Tensor]:
            with record(model, sites) as found:
                model(tokens, read)
            return dict(found)

        with_slot, without = seen(asked_else.tokens), seen(both)
        at = (read == torch.arange(clean.shape[1], device=clean.device))[..., None]
        taps: dict[str, Tap] = {}
        for number, site in enumerate(sites):
            of_slot = torch.where(at, with_slot[site] - without[site], torch.zeros_like(with_slot[site]))
            only = torch.cat([of_slot if i == number else torch.zeros_like(of_slot) for i in range(count)])
            taps[site] = lambda x, only=only: x + only
        from_clean, from_corrupted = model(clean, read), model(corrupted, read)
        with edit(model, taps):
            edited = model(corrupted.repeat(count, 1), read.repeat(count, 1)).unflatten(0, (count, -1))
        compared = counterfactual_or_runner_up(others, from_corrupted, targets)
        top, bottom, found = (Effects.of(logits, targets, compared) for logits in (from_clean, from_corrupted, edited))
        high, low = top.logit_difference[:, 0], bottom.logit_difference[:, 0]
        gap = (top.accuracy[:, 0] > 0) & (bottom.accuracy[:, 0] == 0) & (high > low) & possible
        size = torch.where(gap, high - low, torch.ones_like(high))
        share = (found.logit_difference[..., 0] - low) / size
        return torch.stack([gap.to(high.dtype).expand(count, -1), share, found.accuracy[..., 0].to(high.dtype)])

    return program

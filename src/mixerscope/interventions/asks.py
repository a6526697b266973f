"""Which block looks for what is asked: with the query changed, what a block writes at the query brings the answer back.

A block that retrieves writes something else for another query. One that copies the whole document to the query, for a
later block to pick from, writes the same; key and value arrive there all the same, so that no route shows it.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from mixerscope.artifacts.effects import half
from mixerscope.artifacts.proof import Asked
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.effects import Effects, counterfactual_or_runner_up
from mixerscope.interventions.members import Members
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import boundary_sites
from mixerscope.interventions.programs import Program
from mixerscope.model import Model
from mixerscope.sites import Tap, edit, record


def asked_by(members: Members, pairs: Pairs, batch_documents: int) -> list[list[Asked]]:
    """By model, a record for each block; none where the query is not a token that was changed."""
    sites, slot = boundary_sites(members.first), _question(pairs)
    if len(sites) < 3 or slot is None:
        return [[] for _ in members.models]
    here, blocks = pairs.to(device_of(members.first)), len(sites) - 1
    rows = max(1, min(len(here), batching(members.first, here, batch_documents, len(members)).rows // blocks))
    parts = [members.map(_written_by_each(chunk, slot, sites)).cpu() for chunk in here.chunks(rows)]
    table = torch.cat(parts, -1)  # [k, 3, blocks, n]
    return [
        [Asked(slot, block, gap > 0, half(share), answered > 0) for block, (gap, share, answered) in enumerate(own)]
        for own in table.transpose(1, 2)
    ]


def _question(pairs: Pairs) -> str | None:
    """The slot that stands where the answer is read."""
    read = pairs.reads.positions[:, 0]
    known = [slot for slot in pairs.together if slot in pairs.corrupted and slot in pairs.original.roles]
    return next((slot for slot in known if torch.equal(pairs.original.roles[slot], read)), None)


def _written_by_each(pairs: Pairs, slot: str, sites: Sequence[str]) -> Program:
    """[3, blocks, n]: whether the document counts, how far what the block wrote brings the answer back, and whether it
    is right then."""
    clean, corrupted = pairs.original.tokens, pairs.corrupted[slot].tokens
    read, targets = pairs.reads.positions[:, :1], pairs.reads.targets[:, :1]
    others = None if slot not in pairs.reads.others else pairs.reads.others[slot][:, :1]
    blocks = len(sites) - 1

    def program(model: Model | Adapted) -> Tensor:
        def run(tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            with record(model, sites) as seen:
                logits = model(tokens, read)
            return logits, dict(seen)

        from_clean, seen_clean = run(clean)
        from_corrupted, seen_corrupted = run(corrupted)
        at = (read == torch.arange(clean.shape[1], device=clean.device))[..., None]
        taps: dict[str, Tap] = {}
        for block, (before, after) in enumerate(pairwise(sites)):
            there, here = (seen[after] - seen[before] for seen in (seen_clean, seen_corrupted))
            change = torch.where(at, there - here, torch.zeros_like(there))
            only = torch.cat([change if i == block else torch.zeros_like(change) for i in range(blocks)])
            taps[after] = lambda x, only=only: x + only
        with edit(model, taps):
            edited = model(corrupted.repeat(blocks, 1), read.repeat(blocks, 1)).unflatten(0, (blocks, -1))
        compared = counterfactual_or_runner_up(others, from_corrupted, targets)
        top, bottom, found = (Effects.of(logits, targets, compared) for logits in (from_clean, from_corrupted, edited))
        high, low = top.logit_difference[:, 0], bottom.logit_difference[:, 0]
        gap = (top.accuracy[:, 0] > 0) & (bottom.accuracy[:, 0] == 0) & (high > low)
        size = torch.where(gap, high - low, torch.ones_like(high))
        share = (found.logit_difference[..., 0] - low) / size
        return torch.stack([gap.to(high.dtype).expand(blocks, -1), share, found.accuracy[..., 0].to(high.dtype)])

    return program

"""Models that answer at every position, run on many documents: what they say, and what flows through them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mixerscope.errors import UserError
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.members import Members
from mixerscope.model import Model
from mixerscope.sites import edit, record
from mixerscope.tasks import Batch, StateTask
from mixerscope.training.objective import answer_correct

Change = Callable[..., Tensor]
"""What becomes of what flows through a site: of x and the model's own part of what was given."""
LOGITS = "logits"
LARGEST_CHUNK = 512
"""Documents in one pass, where memory would take more."""
MOST_ROWS = 2048
"""Documents times edits in one pass: states inside a mixer are larger than what the stream has."""


def demand_states(task: Any) -> StateTask:
    """The task, if it tracks a state."""
    if not isinstance(task, StateTask):
        raise UserError(
            f"{type(task).__name__} tracks no state, so there is none to look for; parity, group, dyck and flip_flop do"
        )
    return task


def chunks(members: Members, batch: Batch, largest: int = LARGEST_CHUNK) -> Iterator[tuple[slice, Batch]]:
    """Documents a few at a time, at most `largest`, on the models' device."""
    first = members.first
    size = min(largest, max(64, batching(first, batch, LARGEST_CHUNK, len(members)).documents))
    device = device_of(first)
    for start in range(0, len(batch), size):
        rows = slice(start, start + size)
        yield rows, batch[rows].to(device)


def right_answers(members: Members, batch: Batch, edits: Mapping[str, Change] | None = None, *own: Tensor) -> Tensor:
    """[k, n, t] whether each model's answer at each position is right; positions that ask nothing are never right.

    `edits` say what becomes of sites: of x [b, t, ...], and of the model's part of each of `own` [k, ...].
    """

    def program(model: Model, tokens: Tensor, targets: Tensor, *mine: Tensor) -> Tensor:
        taps = {site: lambda x, change=change: change(x, *mine) for site, change in (edits or {}).items()}
        with edit(model, taps):
            return answer_correct(model(tokens), targets.clamp(min=0)) & (targets >= 0)

    return run_on(members, batch, program, *own)


def run_on(members: Members, batch: Batch, program: Callable[..., Tensor], *own: Tensor) -> Tensor:
    """What program(model, tokens, targets, *own) gives for each model, [k, n, ...], on the host."""
    found: list[Tensor] = []
    with members.evaluating():
        for _, part in chunks(members, batch):
            again = [tensor.expand(len(members), *tensor.shape) for tensor in (part.tokens, part.targets)]
            found.append(members.map(program, *again, *own).cpu())
    return torch.cat(found, 1)


def right_with_each(members: Members, batch: Batch, site: str, change: Change, *each: Tensor) -> Tensor:
    """[k, v, n, t] whether each answer is right, with each of v edits of a site.

    `change` says what becomes of x [v, b, t, d], which is the same v times, given some v of `each` [k, v, ...]. As many
    edits run together as fit: on a GPU a pass with one takes no shorter.
    """

    def program(model: Model, tokens: Tensor, targets: Tensor, *some: Tensor) -> Tensor:
        count = len(some[0])
        asked = targets.repeat(count, 1)
        with edit(model, {site: lambda x: change(x.unflatten(0, (count, -1)), *some).flatten(0, 1)}):
            right = answer_correct(model(tokens.repeat(count, 1)), asked.clamp(min=0)) & (asked >= 0)
        return right.unflatten(0, (count, -1))

    found: list[Tensor] = []
    with members.evaluating():
        for _, part in chunks(members, batch):
            again = [tensor.expand(len(members), *tensor.shape) for tensor in (part.tokens, part.targets)]
            rows = min(MOST_ROWS, batching(members.first, part, LARGEST_CHUNK, len(members)).rows)
            several = [tensor.split(max(1, rows // len(part)), 1) for tensor in each]
            right = [members.map(program, *again, *some).cpu() for some in zip(*several, strict=True)]
            found.append(torch.cat(right, 1))
    return torch.cat(found, 2)


def site_vectors(members: Members, batch: Batch, sites: Sequence[str], positions: Tensor) -> dict[str, Tensor]:
    """Site to [k, n, p, d]: what flows through it at positions [n, p], flattened to one vector a position; `logits` is
    what the model gives, whether it has a site of that name or not."""
    found: dict[str, list[Tensor]] = {site: [] for site in sites}

    def program(model: Model, tokens: Tensor, at: Tensor) -> dict[str, Tensor]:
        with record(model, [site for site in sites if site != LOGITS]) as seen:
            logits = model(tokens)
        return {site: _at(logits if site == LOGITS else seen[site].flatten(2), at) for site in sites}

    with members.evaluating():
        for rows, part in chunks(members, batch):
            again = [x.expand(len(members), *x.shape) for x in (part.tokens, positions[rows].to(part.tokens.device))]
            for site, x in members.map(program, *again).items():
                found[site].append(x)
    return {site: torch.cat(parts, 1) for site, parts in found.items()}


def _at(x: Tensor, positions: Tensor) -> Tensor:
    """[b, t, d] at [b, p] -> [b, p, d]."""
    return x.gather(1, positions.unsqueeze(-1).expand(*positions.shape, x.shape[-1]))

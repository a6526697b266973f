"""One input in the middle of a document is changed: how much of the answers comes back from single activations."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import chunks
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.model import Model, layers_of
from mixerscope.sites import edit, record
from mixerscope.tasks import UNSCORED, Batch, StateTask
from mixerscope.tasks.base import FIRST_SYMBOL

Place = tuple[str, int | None]
"""A site, and a position; None for every position from the changed one on."""
SPARE = 4
"""Times as many documents as are wanted are drawn: not every one has an input that could be another."""


@dataclass(frozen=True)
class Changed:
    """Documents, and the same with another input at one position."""

    clean: Batch
    changed: Tensor
    """[n, t] tokens."""
    answers: Tensor
    """[n, t] what the changed documents ask for."""
    differs: Tensor
    """[n, t] where both are asked, and the answers are not the same."""


def change_inputs(task: StateTask, n: int, at: int, rng: torch.Generator) -> Changed:
    """Another input at position `at` of each document, such that the rest can still follow and some later answer is
    another one."""
    batch, automaton = task.sample(SPARE * n, rng, "test"), task.automaton
    inputs, count = task.inputs_of(batch.tokens), len(automaton.inputs)
    tried = inputs.repeat_interleave(count, 0)
    tried[:, at] = torch.arange(count).repeat(len(inputs))
    answers = task.answer_tokens(automaton.run(tried)).view(len(inputs), count, -1)
    asked = (batch.targets != UNSCORED)[:, None] & (torch.arange(inputs.shape[1]) >= at)
    both = torch.cat([torch.zeros_like(tried[:, :1]).bool(), task.asked(tried[:, 1:])], 1).view_as(answers) & asked
    differs = both & (answers != batch.targets[:, None])
    usable = automaton.possible(tried).view(len(inputs), count) & differs[..., at + 1 :].any(-1)
    chance = (torch.rand(usable.shape, generator=rng) + 1e-6) * usable
    chosen = chance.argmax(1)
    kept = usable.any(1).nonzero().flatten()[:n]
    if len(kept) < 2:
        raise UserError(
            f"input {at} can be another one in {len(kept)} of {n} documents, and two is the least; take another"
            " position, or more pairs"
        )
    tokens = batch.tokens[kept].clone()
    tokens[:, at] = FIRST_SYMBOL + chosen[kept]
    return Changed(batch[kept], tokens, answers[kept, chosen[kept]], differs[kept, chosen[kept]])


def differences(members: Members, pairs: Changed, at: int, places: Sequence[Place]) -> tuple[Tensor, Tensor]:
    """Logit differences between the unchanged and the changed answer: [k, 2, n, t] of both documents as they are, and
    [k, c, n, t] of the changed one with the unchanged one's activation at each of the places."""
    sites = list(dict.fromkeys(site for site, _ in places))
    found: list[tuple[Tensor, Tensor]] = []

    def program(model: Model, clean: Tensor, changed: Tensor, right: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
        def gap(logits: Tensor) -> Tensor:
            picked = [logits.gather(-1, answer.unsqueeze(-1)).squeeze(-1) for answer in (right, wrong)]
            return picked[0] - picked[1]

        with record(model, sites) as kept:
            unedited = gap(model(clean))
        edited: list[Tensor] = []
        where = torch.arange(clean.shape[1], device=clean.device)
        for site, position in places:
            here = where >= at if position is None else where == position
            here = here.view(1, -1, *[1] * (kept[site].dim() - 2))
            with edit(model, {site: lambda x, new=kept[site], here=here: torch.where(here, new, x)}):
                edited.append(gap(model(changed)))
        return torch.stack([unedited, gap(model(changed))]), torch.stack(edited)

    with members.evaluating():
        for rows, part in chunks(members, pairs.clean):
            device = part.tokens.device
            right = part.targets.clamp(min=0)
            given = (part.tokens, pairs.changed[rows].to(device), right, pairs.answers[rows].to(device))
            both = members.map(program, *(tensor.expand(len(members), *tensor.shape) for tensor in given))
            found.append((both[0].cpu(), both[1].cpu()))
    return torch.cat([one for one, _ in found], 2), torch.cat([other for _, other in found], 2)


@contextmanager
def without_taps(model: Model, block: int) -> Iterator[None]:
    """Short convolutions of a block see the current position alone."""

    def current(module: ShortConv, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        y = given[0] * module.weight[:, -1]
        return y if module.bias is None else y + module.bias

    with ExitStack() as stack:
        for conv in convolutions(model, block):
            stack.callback(conv.register_forward_hook(current).remove)
        yield


def convolved_blocks(model: nn.Module) -> list[int]:
    """Blocks with short convolutions that are known as such."""
    return [i for i in range(len(layers_of(model))) if convolutions(model, i)]


def convolutions(model: nn.Module, block: int) -> list[ShortConv]:
    return [module for module in layers_of(model)[block].modules() if isinstance(module, ShortConv)]

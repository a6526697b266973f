"""What components give, replaced: by zeros, means, other documents' outputs, and by changes as large as these that say
nothing."""

from collections.abc import Mapping
from functools import cache

import torch
from torch import Tensor

from mixerscope.artifacts import Ablated
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import Change
from mixerscope.randomness import stream
from mixerscope.sites import named_sites
from mixerscope.stages.counting import Counting

COMPONENTS = (".mixer_out", ".mlp_out", ".resid_post")
"""What is ablated: what mixers and MLPs add to the stream, and what whole blocks leave in it."""
ABLATIONS: Mapping[str, Change] = {
    "zero": torch.zeros_like,
    "mean": lambda x: x.mean(1, keepdim=True).expand_as(x),
    "resample": lambda x: x.roll(1, 1),
}
"""What is put in place of x [v, b, t, d]: over the documents that run together, each position its own."""


def ablations(members: Members, counting: Counting, turns: int) -> list[list[Ablated]]:
    """By model, every component and ablation at the training length."""
    found: list[list[Ablated]] = [[] for _ in members.models]
    for site in named_sites(members.first):
        if not site.endswith(COMPONENTS):
            continue
        for name, change in ABLATIONS.items():
            accuracies = _ablated(members, counting, site, change, turns)
            for k, (own, (accuracy, *turned)) in enumerate(zip(found, accuracies, strict=True)):
                own.append(Ablated(site, name, accuracy, counting.damage(k, 0, accuracy), tuple(turned)))
    return found


def _ablated(members: Members, counting: Counting, site: str, change: Change, turns: int) -> list[list[float]]:
    """By model: the accuracy after the ablation, and after each of its turned changes."""

    def put(x: Tensor, number: Tensor) -> Tensor:
        new = change(x)
        turn = _turns(x.shape[-1], turns).to(x)[number]
        turned = x + ((new - x).flatten(1, 2) @ turn).view_as(x)
        return torch.where(number[:, None, None, None] > 0, turned, new)

    number = torch.arange(1 + turns, device=device_of(members.first)).expand(len(members), -1)
    return counting.accuracies(0, counting.with_each(0, site, put, number))


@cache
def _turns(width: int, count: int) -> Tensor:
    """[1 + n, d, d] random rotations; the first stands for none and is not used."""
    rng = stream(0, "turned changes", str(width))
    drawn = torch.randn(1 + count, width, width, generator=rng, dtype=torch.float64)
    return torch.linalg.qr(drawn).Q

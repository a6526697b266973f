"""Distributed alignment search (Geiger et al. 2024): a subspace such that exchanging it exchanges the state.

Patches along directions that a model never uses can act all the same (Makelov et al. 2024), so subspaces are looked for
among the leading principal axes of what is held, and beside them stands what exchanging everything does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.interventions.members import Members
from mixerscope.interventions.transplant import Column, logits_after
from mixerscope.tasks import UNSCORED, Batch

VARIANCE = 0.99
"""Share of the variance that the axes hold."""
MOST_AXES = 256


class Pairs(Protocol):
    """What a subspace is learned on."""

    @property
    def base(self) -> Batch: ...

    @property
    def follows(self) -> Tensor: ...


@dataclass(frozen=True)
class Span:
    """The leading principal axes of what models hold at some sites together, each site scaled to the same variance."""

    sites: tuple[str, ...]
    scales: Mapping[str, Tensor]
    """[k, 1, 1] a site."""
    mean: Tensor
    """[k, 1, d]"""
    axes: Tensor
    """[k, d, p] orthonormal; those beyond a model's own number are zero."""
    variance: Tensor
    """[k] share of it that they hold."""

    @staticmethod
    def over(column: Column, sites: Sequence[str]) -> "Span":
        """Of what is held in many documents, [k, n, d] a site."""
        spread = {site: column[site].double().std(1, keepdim=True).square().sum(-1, keepdim=True) for site in sites}
        scales = {site: torch.where(v > 0, v.sqrt(), 1.0) for site, v in spread.items()}
        x = _side_by_side(column, scales)
        mean = x.mean(1, keepdim=True)
        x.sub_(mean)
        wide = x.shape[-1] > x.shape[1]
        # The axes of few documents with many numbers are found by the products of the documents.
        values, turn = torch.linalg.eigh(x @ x.mT if wide else x.mT @ x)
        values, turn = values.flip(-1).clamp(min=0), turn.flip(-1)
        upto = values.cumsum(-1) / values.sum(-1, keepdim=True).clamp(min=1e-30)
        wanted = (upto < VARIANCE).sum(-1) + 1
        count = wanted.clamp(max=min(MOST_AXES, turn.shape[-1]))
        most = int(count.max())
        axes = turn[..., :most]  # no more of them, as each is as long as what is held
        if wide:
            axes = x.mT @ (axes / values[..., :most].clamp(min=1e-30).sqrt().unsqueeze(-2))
        # Which way an axis points is anybody's choice: the same one on every machine.
        largest = axes.gather(-2, axes.abs().argmax(-2, keepdim=True))
        alive = torch.arange(most, device=x.device) < count[:, None]
        axes = axes * torch.where(largest < 0, -1.0, 1.0) * alive.unsqueeze(-2)
        held = upto.gather(-1, (count - 1)[:, None])[:, 0]
        return Span(tuple(sites), scales, mean, axes, held)

    @property
    def count(self) -> Tensor:
        """[k] axes of each model."""
        return (self.axes.square().sum(1) > 0.5).sum(-1)

    def coordinates(self, column: Column) -> Tensor:
        """[k, n, p] of what is held, along the axes."""
        return _side_by_side(column, self.scales).sub_(self.mean) @ self.axes

    def root_of(self, chosen: Callable[[str], bool], sizes: Mapping[str, int]) -> Tensor:
        """[k, p, p] such that distances of coordinates times it are those at the chosen sites alone."""
        at_site = torch.cat([torch.full((sizes[site],), float(chosen(site))) for site in self.sites]).to(self.axes)
        values, turn = torch.linalg.eigh(self.axes.mT @ (self.axes * at_site[:, None]))
        return turn * values.clamp(min=0).sqrt().unsqueeze(-2)

    def moved(self, column: Column, change: Tensor) -> Column:
        """What is held after a change [k, n, p] of its coordinates."""
        whole = change.to(self.axes) @ self.axes.mT
        parts = whole.split([column[site].shape[-1] for site in self.sites], -1)
        pairs = zip(self.sites, parts, strict=True)
        return {site: column[site] + (part * self.scales[site]).to(column[site]) for site, part in pairs}


def _side_by_side(column: Column, scales: Mapping[str, Tensor]) -> Tensor:
    """[k, n, d] what is held at all sites, scaled. Of recurrent states these are gigabytes of a cohort, so there is no
    second copy of it."""
    first = column[next(iter(scales))]
    sizes = [column[site].shape[-1] for site in scales]
    found = torch.empty(*first.shape[:2], sum(sizes), dtype=torch.float64, device=first.device)
    for (site, scale), part in zip(scales.items(), found.split(sizes, -1), strict=True):
        part.copy_(column[site]).div_(scale)
    return found


def learn_subspaces(
    members: Members,
    pairs: Pairs,
    position: int,
    span: Span,
    base: Column,
    source: Column,
    ranks: Sequence[int],
    *,
    steps: int,
    batch: int,
    lr: float,
    rng: torch.Generator,
) -> list[Tensor]:
    """For each rank [k, p, r] orthonormal coordinates: what to exchange so that answers follow the source's state."""
    device, models = span.axes.device, len(members)
    alive = (span.axes.square().sum(1) > 0.5).to(span.axes)[..., None]  # [k, p, 1]
    drawn = [torch.randn(alive.shape[1], rank, generator=rng, dtype=torch.float64) for rank in ranks]
    turns = [_orthonormal(one.to(device), alive).clone().requires_grad_() for one in drawn]
    optimiser = torch.optim.Adam(turns, lr=lr)
    difference = (span.coordinates(source) - span.coordinates(base)).detach()
    tokens, targets = pairs.base.tokens.to(device), _targets(pairs, position).to(device)
    with members.differentiable():
        for step in range(steps):
            rows = torch.randint(len(tokens), (min(batch, len(tokens)),), generator=rng).to(device)
            here = {site: x[:, rows].repeat(1, len(ranks), 1) for site, x in base.items() if site in span.sites}
            changes = [_along(difference[:, rows], _orthonormal(turn, alive)) for turn in turns]
            written = span.moved(here, torch.cat(changes, 1))
            logits = logits_after(members, tokens[rows].repeat(len(ranks), 1), position, written)
            asked = targets[rows].repeat(len(ranks), 1).expand(models, -1, -1)
            # A sum over models and ranks: each has its own part, so each is minimised.
            loss = F.cross_entropy(
                logits.flatten(0, 2).float(), asked.flatten(), ignore_index=UNSCORED, reduction="sum"
            )
            for group in optimiser.param_groups:
                group["lr"] = lr * (1 - step / steps)
            optimiser.zero_grad()
            grads = torch.autograd.grad(loss / (asked[0] != UNSCORED).sum(), turns)
            for turn, grad in zip(turns, grads, strict=True):
                turn.grad = torch.nan_to_num(grad, 0.0, 0.0, 0.0)  # a model that went astray costs others nothing
            optimiser.step()
    return [_orthonormal(turn.detach(), alive) for turn in turns]


def _targets(pairs: Pairs, position: int) -> Tensor:
    """[n, t] the answers that must follow, from the position on, where documents are asked."""
    here = torch.arange(pairs.follows.shape[1]) >= position
    return torch.where(here & (pairs.base.targets != UNSCORED), pairs.follows, UNSCORED)


def _orthonormal(turn: Tensor, alive: Tensor) -> Tensor:
    """[k, p, r] with the span of columns [p, r] or [k, p, r], by the Cholesky factor of their products: on a GPU that
    is a few launches for all models, where Householder reflections are some for each. A model that went astray gets
    numbers that are none, and stops no other."""
    columns = turn * alive
    factor, _ = torch.linalg.cholesky_ex(columns.mT @ columns)
    return torch.linalg.solve_triangular(factor, columns.mT, upper=False).mT


def _along(difference: Tensor, basis: Tensor) -> Tensor:
    return difference @ basis @ basis.mT

"""Distributed alignment search (Geiger et al. 2024): a subspace such that exchanging it exchanges the state.

Patches along directions that a model never uses can act all the same (Makelov et al. 2024), so subspaces are looked for
among the leading principal axes of what is held, and beside them stands what exchanging everything does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
ON_THE_WAY = (0.25, 0.5, 0.75)
"""Of the difference: where gradients are taken."""


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

    def orthonormal(self, directions: Tensor) -> Tensor:
        """[k, p, r] of directions [p, r], or [k, p, r], within the axes of each model; meaningless in one with
        fewer axes than r."""
        alive = (self.axes.square().sum(1) > 0.5).to(self.axes)[..., None]
        return _orthonormal(directions.to(self.axes), alive)

    def coordinates(self, column: Column) -> Tensor:
        """[k, n, p] of what is held, along the axes."""
        return _side_by_side(column, self.scales).sub_(self.mean) @ self.axes

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


@dataclass(frozen=True)
class Exchange:
    """Pairs of documents between which parts of what is held are exchanged, and the answers that must follow."""

    members: Members
    position: int
    """After which input."""
    span: Span
    base: Column
    difference: Tensor
    """[k, n, p] of the sources' coordinates from those of the base."""
    tokens: Tensor
    targets: Tensor
    """[n, t] answers that must follow, where documents are asked."""

    @staticmethod
    def between(members: Members, pairs: Pairs, position: int, span: Span, base: Column, source: Column) -> "Exchange":
        difference = (span.coordinates(source) - span.coordinates(base)).detach()
        here = {site: x for site, x in base.items() if site in span.sites}
        tokens, targets = (x.to(difference.device) for x in (pairs.base.tokens, _targets(pairs, position)))
        return Exchange(members, position, span, here, difference, tokens, targets)

    def __len__(self) -> int:
        return len(self.tokens)

    def losses(self, rows: Tensor, changes: Sequence[Tensor]) -> Tensor:
        """[k, c] of the answers that must follow each of the changes [k, b, p] of some pairs' coordinates."""
        many = len(changes)
        here = {site: x[:, rows].repeat(1, many, 1) for site, x in self.base.items()}
        written = self.span.moved(here, torch.cat(list(changes), 1))
        logits = logits_after(self.members, self.tokens[rows].repeat(many, 1), self.position, written)
        asked = self.targets[rows].repeat(many, 1).expand(len(self.members), -1, -1)
        loss = F.cross_entropy(logits.flatten(0, 2).float(), asked.flatten(), ignore_index=UNSCORED, reduction="none")
        return loss.view(len(self.members), many, -1).sum(-1) / (self.targets[rows] != UNSCORED).sum()

    def parts(self, size: int) -> Iterator[Tensor]:
        """Numbers of all pairs, so many at a time."""
        yield from torch.arange(len(self), device=self.tokens.device).split(size)


def any_directions(axes: int, rank: int, rng: torch.Generator) -> Tensor:
    """[axes, rank] random ones; of fewer axes they are the first numbers of the same."""
    return torch.randn(MOST_AXES, rank, generator=rng, dtype=torch.float64)[:axes]


def turning_directions(exchange: Exchange, size: int) -> Tensor:
    """[k, p, p] orthonormal, those along which an exchange turns answers most first: the leading directions of the
    gradients' second moment, on the way from what the base holds to what the source does (active subspaces,
    Constantine 2014). `size` is how many pairs run together."""
    difference = exchange.difference
    alive = exchange.span.axes.square().sum(1) > 0.5  # [k, p]
    moment = torch.zeros(*alive.shape, alive.shape[1], dtype=difference.dtype, device=difference.device)
    with exchange.members.differentiable():
        for rows in exchange.parts(size):
            for share in ON_THE_WAY:
                change = (share * difference[:, rows]).requires_grad_()
                gradient = _gradients(exchange.losses(rows, [change]).sum(), [change])[0]
                moment += gradient.mT @ gradient
    whole = moment.diagonal(dim1=1, dim2=2).sum(1).clamp(min=1e-30)[:, None, None]
    # Axes that a model has come before those it has not.
    return torch.linalg.eigh(moment / whole + 1e-9 * torch.diag_embed(alive.to(moment))).eigenvectors.flip(-1)


def learn_subspaces(
    exchange: Exchange,
    ranks: Sequence[int],
    draw: Callable[[str, int], torch.Generator],
    *,
    steps: int,
    batch: int,
    lr: float,
) -> list[Tensor]:
    """For each rank [k, p, r] orthonormal coordinates: what to exchange so that answers follow the source's state.

    Where learning ends depends on where it begins. So it begins twice, at the directions that turn answers most and at
    random ones, and of each model the better one counts, by the pairs that it learned on.
    """
    span, axes = exchange.span, exchange.span.axes.shape[-1]
    turning = turning_directions(exchange, batch * len(ranks))
    starts = [turning[..., :rank] for rank in ranks] + [any_directions(axes, r, draw("start", r)) for r in ranks]
    turns = [span.orthonormal(one).clone().requires_grad_() for one in starts]
    optimiser, rng = torch.optim.Adam(turns, lr=lr), draw("rows", 0)
    with exchange.members.differentiable():
        for step in range(steps):
            rows = torch.randint(len(exchange), (min(batch, len(exchange)),), generator=rng).to(span.axes.device)
            # A sum over models and ranks: each has its own part, so each is minimised.
            loss = exchange.losses(rows, _along(exchange.difference[:, rows], [span.orthonormal(one) for one in turns]))
            for group in optimiser.param_groups:
                group["lr"] = lr * (1 - step / steps)
            for turn, gradient in zip(turns, _gradients(loss.sum(), turns), strict=True):
                turn.grad = gradient
            optimiser.step()
    learned = [span.orthonormal(turn.detach()) for turn in turns]
    total = torch.zeros(len(exchange.members), len(learned), device=span.axes.device)
    with exchange.members.evaluating():
        for rows in exchange.parts(batch):
            asked = (exchange.targets[rows] != UNSCORED).sum()
            total += exchange.losses(rows, _along(exchange.difference[:, rows], learned)) * asked
    from_turning, from_any = total.nan_to_num(float("inf")).split(len(ranks), 1)
    better = (from_any < from_turning)[..., None, None]  # [k, c, 1, 1]
    pairs = zip(learned[: len(ranks)], learned[len(ranks) :], strict=True)
    return [torch.where(better[:, at], second, first) for at, (first, second) in enumerate(pairs)]


def _gradients(loss: Tensor, of: Sequence[Tensor]) -> list[Tensor]:
    """Zero where nothing that is changed is read, and of a model that went astray: it costs others nothing."""
    if not loss.requires_grad:
        return [torch.zeros_like(one) for one in of]
    found = torch.autograd.grad(loss, of, allow_unused=True)
    whole = [torch.zeros_like(one) if own is None else own for one, own in zip(of, found, strict=True)]
    return [torch.nan_to_num(own, 0.0, 0.0, 0.0) for own in whole]


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


def _along(difference: Tensor, bases: Sequence[Tensor]) -> list[Tensor]:
    """Of the differences, what lies along each of the bases."""
    return [difference @ basis @ basis.mT for basis in bases]

"""Erasing what can be read linearly: maps h -> h - (h - mean) M that take a label, or as much of something else, away.

All for k models at once: vectors [k, n, d], maps [k, d, d]. After an erasure a fresh probe must be fitted: only what it
still reads, `residual`, says whether the label is gone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.probing.ridge import Parts, fit_probes, moments

SMALLEST_CORRELATION = 0.01
"""Between whitened vectors and a label: directions below it are left alone."""
CHANCE_MARGIN = 0.02
"""A residual this close to chance is chance."""
LARGEST_RANK = 0.25
"""Share of the dimensions that iterated projection may take."""


@dataclass(frozen=True)
class Eraser:
    """h -> h - (h - mean) @ matrix."""

    mean: Tensor
    """[k, 1, d]"""
    matrix: Tensor
    """[k, d, d]"""
    rank: Tensor
    """[k]"""

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors [k, n, d] after the erasure."""
        return vectors.double() - (vectors.double() - self.mean) @ self.matrix

    def variance(self, vectors: Tensor) -> Tensor:
        """[k] share of the vectors' variance that is taken away."""
        centred = vectors.double() - self.mean
        all_of_it = centred.square().sum((1, 2))
        return torch.where(all_of_it > 0, (centred @ self.matrix).square().sum((1, 2)) / all_of_it, 0.0)


def projection(mean: Tensor, basis: Tensor) -> Eraser:
    """Takes out the span of orthonormal columns [k, d, r]; columns of zeros are none."""
    rank = (basis.square().sum(1) > 0.5).sum(-1)
    return Eraser(mean, basis @ basis.mT, rank)


def single_direction(vectors: Tensor, label: Tensor, parts: Parts) -> Eraser:
    """The one direction a probe weighs most: the test of necessity that a refit shows to miss most of the label."""
    probe = fit_probes(moments(vectors, parts.fit), {"": label}, parts)[""]
    return projection(vectors[:, parts.fit].double().mean(1, keepdim=True), probe.directions()[..., :1])


def leace(vectors: Tensor, label: Tensor, fit: Tensor) -> Eraser:
    """The smallest change after which no linear map can read the label (Belrose et al. 2023): in coordinates in which
    the vectors are white, the span of their covariance with the label is projected out."""
    known = vectors[:, fit].double()
    mean = known.mean(1, keepdim=True)
    centred, free = known - mean, known.shape[1] - 1
    one_hot = F.one_hot(label[fit]).double()
    covariance = centred.mT @ centred / free
    with_label = centred.mT @ (one_hot - one_hot.mean(0)) / free
    values, axes = torch.linalg.eigh(covariance)
    size = values.shape[-1] * torch.finfo(values.dtype).eps
    alive = values > values[..., -1:] * size
    root = torch.where(alive, values.clamp(min=0).sqrt(), 0.0)
    inverse = torch.where(alive, 1 / root, 0.0)
    whiten = (axes * inverse.unsqueeze(-2)) @ axes.mT
    unwhiten = (axes * root.unsqueeze(-2)) @ axes.mT
    left, sizes, _ = torch.linalg.svd(whiten @ with_label, full_matrices=False)
    left = left * (sizes > SMALLEST_CORRELATION).unsqueeze(-2)
    # Vectors are rows here: the transpose of unwhiten P whiten.
    return Eraser(mean, whiten @ left @ left.mT @ unwhiten, (sizes > SMALLEST_CORRELATION).sum(-1))


def iterated_projection(vectors: Tensor, label: Tensor, parts: Parts) -> Eraser:
    """Iterative null-space projection (Ravfogel et al. 2020): fit, take the probe's directions out, fit again, until
    nothing is read or a quarter of the dimensions is gone."""
    mean = vectors[:, parts.fit].double().mean(1, keepdim=True)
    left = vectors.double() - mean
    models, _, width = left.shape
    basis = left.new_zeros(models, width, 0)
    chance = chance_of(label[parts.judge])
    while basis.shape[-1] < max(1, int(LARGEST_RANK * width)):
        probe = fit_probes(moments(left, parts.fit), {"": label}, parts)[""]
        going = probe.accuracy > chance + CHANCE_MARGIN
        if not bool(going.any()):
            break
        found = probe.directions()
        found = found - basis @ (basis.mT @ found)
        axes, sizes, _ = torch.linalg.svd(found, full_matrices=False)
        new = axes * ((sizes > 1e-6) & going[:, None]).unsqueeze(-2)
        basis = torch.cat([basis, new], -1)
        left = left - (left @ new) @ new.mT
    return projection(mean, basis)


def random_subspace(like: Eraser, rng: torch.Generator) -> Eraser:
    """A uniformly random subspace of the same rank."""
    return projection(like.mean, _within(like, None, like.rank, rng))


def random_variance(like: Eraser, vectors: Tensor, rng: torch.Generator) -> Eraser:
    """A random subspace of the same rank that takes about the same variance away: drawn among the leading axes, as many
    of them as make the average right."""
    centred = vectors.double() - like.mean
    values, axes = torch.linalg.eigh(centred.mT @ centred)
    values, axes = values.flip(-1).clamp(min=0), axes.flip(-1)
    wanted = like.variance(vectors) * values.sum(-1)
    count = torch.arange(1, values.shape[-1] + 1, device=values.device)
    average = values.cumsum(-1) / count * like.rank[:, None]
    enough = (average >= wanted[:, None]).sum(-1)
    leading = torch.maximum(enough, like.rank).clamp(1, values.shape[-1])
    inside = axes * (count <= leading[:, None]).unsqueeze(-2)
    return projection(like.mean, _within(like, inside, like.rank, rng))


def _within(like: Eraser, axes: Tensor | None, rank: Tensor, rng: torch.Generator) -> Tensor:
    """[k, d, r] orthonormal and random, within the span of the axes [k, d, d]; for each model its own rank."""
    models, width, _ = like.matrix.shape
    most = max(1, int(rank.max()))
    drawn = torch.randn(models, width, most, generator=rng, dtype=torch.float64).to(like.matrix.device)
    if axes is not None:
        drawn = axes @ drawn
    basis = torch.linalg.qr(drawn).Q
    return basis * (torch.arange(most, device=basis.device) < rank[:, None]).unsqueeze(-2)


def chance_of(label: Tensor) -> float:
    """Balanced accuracy of one answer for all."""
    return 1 / len(label.unique())


def residual(eraser: Eraser, vectors: Tensor, label: Tensor, parts: Parts) -> Tensor:
    """[k] what a fresh probe reads after the erasure."""
    return fit_probes(moments(eraser(vectors), parts.fit), {"": label}, parts)[""].accuracy


def same_subspace(one: Tensor, other: Tensor) -> Tensor:
    """[k] mean squared cosine of the principal angles between the spans of orthonormal columns [k, d, r]."""
    return torch.linalg.svdvals(one.mT @ other).square().mean(-1)

"""Erasing what can be read linearly: maps h -> h - (h - mean) M that take a label, or as much of something else, away.

All for k models at once, maps [k, d, d], worked out from the moments of the vectors alone. After an erasure a fresh
probe must be fitted: only what it still reads, `residual`, says whether the label is gone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.probing.ridge import Moments, Parts, Probe, axes_of, fit_probes

SMALLEST_CORRELATION = 0.01
"""Between whitened vectors and a label: directions below it are left alone."""
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

    def left(self, found: Moments) -> Moments:
        """Of what the erasure leaves of the vectors whose mean it keeps."""
        eye = torch.eye(self.matrix.shape[-1], dtype=self.matrix.dtype, device=self.matrix.device)
        return found.through(eye - self.matrix)

    def variance(self, found: Moments) -> Tensor:
        """[k] share of the vectors' variance that is taken away."""
        taken = (self.matrix.mT @ found.gram @ self.matrix).diagonal(dim1=-2, dim2=-1).sum(-1)
        all_of_it = found.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        return torch.where(all_of_it > 0, taken / all_of_it, 0.0)


def projection(mean: Tensor, basis: Tensor) -> Eraser:
    """Takes out the span of orthonormal columns [k, d, r]; columns of zeros are none."""
    rank = (basis.square().sum(1) > 0.5).sum(-1)
    return Eraser(mean, basis @ basis.mT, rank)


def single_direction(found: Moments, probe: Probe) -> Eraser:
    """The one direction a probe weighs most: the test of necessity that a refit shows to miss most of the label."""
    return projection(found.mean, probe.directions()[..., :1])


def leace(found: Moments, label: Tensor, parts: Parts) -> Eraser:
    """The smallest change after which no linear map can read the label (Belrose et al. 2023): in coordinates in which
    the vectors are white, the span of their covariance with the label is projected out."""
    one_hot, free = F.one_hot(label[parts.fit]).double(), found.fit.shape[1] - 1
    with_label = found.with_labels(one_hot - one_hot.mean(0)) / free
    values, axes = found.axes
    values = values / free
    size = values.shape[-1] * torch.finfo(values.dtype).eps
    alive = values > values[..., -1:] * size
    root = torch.where(alive, values.clamp(min=0).sqrt(), 0.0)
    inverse = torch.where(alive, 1 / root, 0.0)
    whiten = (axes * inverse.unsqueeze(-2)) @ axes.mT
    unwhiten = (axes * root.unsqueeze(-2)) @ axes.mT
    left, sizes = axes_of(whiten @ with_label)
    left = left * (sizes > SMALLEST_CORRELATION).unsqueeze(-2)
    # Vectors are rows here: the transpose of unwhiten P whiten.
    return Eraser(found.mean, whiten @ left @ left.mT @ unwhiten, (sizes > SMALLEST_CORRELATION).sum(-1))


def iterated_projection(found: Moments, label: Tensor, parts: Parts, tolerance: float) -> Eraser:
    """Iterative null-space projection (Ravfogel et al. 2020): fit, take the probe's directions out, fit again, until
    what is read is within a tolerance of chance or a quarter of the dimensions is gone."""
    models, width, _ = found.gram.shape
    basis = found.gram.new_zeros(models, width, 0)
    eraser, chance = projection(found.mean, basis), chance_of(label[parts.judge])
    while basis.shape[-1] < max(1, int(LARGEST_RANK * width)):
        probe = fit_probes(eraser.left(found), {"": label}, parts)[""]
        going = probe.accuracy > chance + tolerance
        if not bool(going.any()):
            break
        read = probe.directions()
        new, _ = axes_of(read - basis @ (basis.mT @ read))
        basis = torch.cat([basis, new * going[:, None, None]], -1)
        eraser = projection(found.mean, basis)
    return eraser


@dataclass(frozen=True)
class RandomSubspaces:
    """Maps [k, n, d, d] that take random subspaces out, as large as those of an eraser: what any erasure would do."""

    rank: Tensor
    """Of the same rank, uniformly random."""
    variance: Tensor
    """Of the same rank, and they take about the same variance away: drawn among the leading axes, as many of them as
    make the average right."""

    @staticmethod
    def like(eraser: Eraser, found: Moments, draws: int, rng: torch.Generator) -> "RandomSubspaces":
        models, width, _ = eraser.matrix.shape
        most = max(1, int(eraser.rank.max()))
        drawn = torch.randn(models, draws, width, most, generator=rng, dtype=torch.float64).to(eraser.matrix.device)
        wanted = torch.arange(most, device=drawn.device) < eraser.rank[:, None, None, None]
        inside = _leading(eraser, found)[:, None]

        def maps(columns: Tensor) -> Tensor:
            basis = axes_of(columns)[0] * wanted
            return basis @ basis.mT

        return RandomSubspaces(maps(drawn), maps(inside @ drawn))


def _leading(like: Eraser, found: Moments) -> Tensor:
    """[k, d, d] the principal axes, but zero for those beyond the ones of which a random subspace of the eraser's rank
    takes, on average, as much variance as the eraser does."""
    values, axes = found.axes
    values, axes = values.flip(-1).clamp(min=0), axes.flip(-1)
    wanted = like.variance(found) * values.sum(-1)
    count = torch.arange(1, values.shape[-1] + 1, device=values.device)
    average = values.cumsum(-1) / count * like.rank[:, None]
    enough = (average >= wanted[:, None]).sum(-1)
    leading = torch.maximum(enough, like.rank).clamp(1, values.shape[-1])
    return axes * (count <= leading[:, None]).unsqueeze(-2)


def chance_of(label: Tensor) -> float:
    """Balanced accuracy of one answer for all."""
    return 1 / len(label.unique())


def residual(eraser: Eraser, found: Moments, label: Tensor, parts: Parts) -> Tensor:
    """[k] what a fresh probe reads after the erasure."""
    return fit_probes(eraser.left(found), {"": label}, parts)[""].accuracy


def cosines(one: Tensor, other: Tensor) -> Tensor:
    """[k, r] of the principal angles between the spans of orthonormal columns [k, d, r], largest first; no numbers
    where some columns are none, which stops no other model."""
    product = one.mT @ other
    sound = product.isfinite().flatten(1).all(1)[:, None]
    return torch.linalg.svdvals(product.nan_to_num(0.0, 0.0, 0.0)).where(sound, torch.nan)


def same_subspace(one: Tensor, other: Tensor) -> Tensor:
    """[k] mean squared cosine of the principal angles."""
    return cosines(one, other).square().mean(-1)

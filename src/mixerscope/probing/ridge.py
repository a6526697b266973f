"""Linear probes in closed form: ridge regression to one-hot labels.

One eigendecomposition of the covariance serves every penalty, every set of labels and every control. All functions take
vectors [k, n, d] of k models at once; labels [n] are the same for all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

Name = TypeVar("Name")
PENALTIES = tuple(10.0**power for power in range(-3, 4))
"""Times the mean eigenvalue; which one is taken is decided on vectors that neither fit nor judge."""
SMALLEST_SPREAD = 1e-6
"""Numbers that vary less, relative to the largest of their vector's, say nothing and are left at zero."""


@dataclass(frozen=True)
class Parts:
    """Which vectors fit, which choose the penalty and which judge: [n] masks, no document in two of them."""

    fit: Tensor
    choose: Tensor
    judge: Tensor

    def to(self, device: torch.device) -> "Parts":
        return Parts(self.fit.to(device), self.choose.to(device), self.judge.to(device))


def parts_by_document(tokens: Tensor, each: int, rng: torch.Generator) -> Parts:
    """60, 20 and 20 % of the documents [n, t], of each of which there are `each` vectors; the same tokens are always in
    the same part, however often they were drawn."""
    different, number = torch.unique(tokens, dim=0, return_inverse=True)
    share = torch.randperm(len(different), generator=rng).double()[number] / len(different)
    share = share.repeat_interleave(each)
    return Parts(share < 0.6, (share >= 0.6) & (share < 0.8), share >= 0.8)


@dataclass(frozen=True)
class Probe:
    """A fitted probe of k models: scores are ((x - mean) * scale) @ weight + offset."""

    mean: Tensor
    """[k, 1, d]"""
    scale: Tensor
    """[k, 1, d]"""
    weight: Tensor
    """[k, d, c]"""
    offset: Tensor
    """[c]"""
    penalty: Tensor
    """[k] the one that was chosen."""
    right: Tensor
    """[k, m] whether each of the vectors that judge is told rightly."""
    accuracy: Tensor
    """[k] balanced, on these."""

    def scores(self, vectors: Tensor) -> Tensor:
        return ((vectors.double() - self.mean) * self.scale) @ self.weight + self.offset

    def directions(self) -> Tensor:
        """[k, d, r] orthonormal: what the probe reads, the span of the differences between its classes' weights."""
        weight = self.scale.mT * (self.weight - self.weight.mean(-1, keepdim=True))
        axes, sizes, _ = torch.linalg.svd(weight, full_matrices=False)
        return axes[..., : max(1, weight.shape[-1] - 1)] * (sizes[..., :1] > 0).unsqueeze(-2)


@dataclass(frozen=True)
class Moments:
    """What all probes of one site share: the vectors as they are compared, and the axes of their covariance."""

    mean: Tensor
    scale: Tensor
    scaled: Tensor
    """[k, n, d], zero mean and unit spread over those that fit."""
    values: Tensor
    """[k, d] eigenvalues."""
    axes: Tensor
    """[k, d, d]"""


def moments(vectors: Tensor, fit: Tensor) -> Moments:
    """One eigendecomposition for each model."""
    vectors = vectors.double()
    known = vectors[:, fit]
    mean = known.mean(1, keepdim=True)
    spread = known.std(1, keepdim=True, correction=0)
    scale = torch.where(spread > SMALLEST_SPREAD * spread.amax(-1, keepdim=True), 1 / spread, 0.0)
    scaled = (vectors - mean) * scale
    gram = scaled[:, fit].mT @ scaled[:, fit]
    values, axes = torch.linalg.eigh(gram)
    return Moments(mean, scale, scaled, values.clamp(min=0), axes)


def fit_probes(
    found: Moments, labels: Mapping[Name, Tensor], parts: Parts, penalties: Sequence[float] = PENALTIES
) -> dict[Name, Probe]:
    """A probe for each set of labels [n], whole numbers from 0 on; each with the penalty that suits it best."""
    fit, probes = found.scaled[:, parts.fit], dict[Name, Probe]()
    turned = {name: found.scaled[:, mask] @ found.axes for name, mask in (("c", parts.choose), ("j", parts.judge))}
    unit = found.values.mean(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    for name, label in labels.items():
        classes = int(label.max()) + 1
        one_hot = F.one_hot(label[parts.fit], classes).double()
        offset = one_hot.mean(0)
        right = found.axes.mT @ (fit.mT @ (one_hot - offset))  # [k, d, c]
        tried = [right / (found.values + penalty * unit)[..., None] for penalty in penalties]
        chosen = torch.stack(
            [balanced_accuracy(turned["c"] @ weight + offset, label[parts.choose]) for weight in tried]
        )
        best = chosen.argmax(0)  # [k]
        weight = torch.stack(tried)[best, torch.arange(len(best), device=best.device)]
        right_ones = (turned["j"] @ weight + offset).argmax(-1) == label[parts.judge]
        accuracy = balanced_share(right_ones.double(), label[parts.judge])
        penalty = torch.tensor(penalties, dtype=torch.float64, device=best.device)[best]
        probes[name] = Probe(found.mean, found.scale, found.axes @ weight, offset, penalty, right_ones, accuracy)
    return probes


def balanced_accuracy(scores: Tensor, label: Tensor) -> Tensor:
    """[k] mean over the classes that occur of how many of each are scored highest; scores [k, n, c], label [n]."""
    return balanced_share((scores.argmax(-1) == label).double(), label)


def balanced_share(right: Tensor, label: Tensor) -> Tensor:
    """[...] mean over the classes that occur of the share that is right [..., n]."""
    one_hot = F.one_hot(label).double()
    often = one_hot.sum(0)
    return ((right.double() @ one_hot)[..., often > 0] / often[often > 0]).mean(-1)

"""Linear probes in closed form: ridge regression to one-hot labels.

One pass over the vectors gives their covariance, which serves every penalty, every set of labels, every control and
every erasure: what a linear map makes of the vectors has the covariance that the map makes of theirs. A Cholesky
factor for each penalty takes no longer than one eigendecomposition for all of them (`benchmarks/probes.py`).
All functions take vectors [k, n, d] of k models at once; labels [n] are the same for all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

Name = TypeVar("Name")
PENALTIES = tuple(10.0**power for power in range(-3, 4))
"""Times the mean eigenvalue; which one is taken is decided on vectors that neither fit nor judge; of those that are
equally good there it is the largest."""
SMALLEST_SPREAD = 1e-6
"""Numbers that vary less, relative to the largest of their vector's, say nothing and are left at zero."""
ROUNDING = 1e-8
"""Correlations of a number with a class that are smaller are rounding. Behind an erasure that takes a label there is
nothing else, and where classes are alike in number it would decide what a probe answers, on each machine otherwise."""
SUMMED = 1024
"""Vectors whose products are added up in the vectors' own precision, before they are added up in double."""


@dataclass(frozen=True)
class Parts:
    """Which vectors fit, which choose the penalty and which judge: [n] masks, no document in two of them."""

    fit: Tensor
    choose: Tensor
    judge: Tensor

    def to(self, device: torch.device) -> "Parts":
        return Parts(self.fit.to(device), self.choose.to(device), self.judge.to(device))

    @property
    def usable(self) -> bool:
        """Whether there are vectors in each."""
        return all(bool(one.any()) for one in (self.fit, self.choose, self.judge))


def parts_by_document(tokens: Tensor, each: int, rng: torch.Generator) -> Parts:
    """60, 20 and 20% of the documents [n, t], of each of which there are `each` vectors; the same tokens are always in
    the same part, however often they were drawn."""
    return both_parts_by_document(tokens, each, rng)[0]


def both_parts_by_document(tokens: Tensor, each: int, rng: torch.Generator) -> tuple[Parts, Parts]:
    """These, and parts for a probe of what an erasure leaves, none of whose documents it was fitted to: 15, 5 and 20%,
    of those that choose and judge."""
    different, number = torch.unique(tokens, dim=0, return_inverse=True)
    share = torch.randperm(len(different), generator=rng).double()[number] / len(different)
    share = share.repeat_interleave(each)
    known, judge = share < 0.6, share >= 0.8
    fresh = (share >= 0.6) & (share < 0.75)
    return Parts(known, ~known & ~judge, judge), Parts(fresh, ~known & ~judge & ~fresh, judge)


@dataclass(frozen=True)
class Probe:
    """A fitted probe of k models: scores are (x - mean) @ weight + offset."""

    mean: Tensor
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
        return (vectors.double() - self.mean) @ self.weight + self.offset

    def directions(self) -> Tensor:
        """[k, d, r] orthonormal: what the probe reads, the span of the differences between its classes' weights, what
        weighs most first."""
        axes, _ = axes_of(self.weight - self.weight.mean(-1, keepdim=True))
        return axes[..., : max(1, self.weight.shape[-1] - 1)]


@dataclass(frozen=True)
class Moments:
    """What all probes of one site share."""

    mean: Tensor
    """[k, 1, d] of the vectors that fit."""
    fit: Tensor
    """[k, n, d] those that fit, less the mean, in the precision in which they came; the others alike."""
    choose: Tensor
    judge: Tensor
    gram: Tensor
    """[k, d, d] products of those that fit, in double precision."""
    largest: Tensor
    """[k, 1] spread of the number of a vector, as it came, that varies most."""
    map: Tensor | None = None
    """[k, d, d] what all of them go through before they are read; the products are of what comes out."""

    def through(self, matrix: Tensor) -> "Moments":
        """The same of what a linear map [k, d, d] makes of the vectors."""
        whole = matrix if self.map is None else self.map @ matrix
        return replace(self, gram=matrix.mT @ self.gram @ matrix, map=whole)

    def mapped(self, weight: Tensor) -> Tensor:
        """Weights [k, d, c] for what comes out of the map, as weights for what goes into it."""
        return weight if self.map is None else self.map @ weight

    def with_labels(self, columns: Tensor) -> Tensor:
        """[k, d, c] products of what fits with columns [n, c], in double precision."""
        found = (self.fit.mT @ columns.to(self.fit)).double()
        return found if self.map is None else self.map.mT @ found

    @cached_property
    def scale(self) -> Tensor:
        """[k, d, 1] by which numbers get unit spread; 0 for those that do not vary."""
        spread = _spread(self.gram, self.fit.shape[1])
        return torch.where(spread > SMALLEST_SPREAD * self.largest, 1 / spread, 0.0).unsqueeze(-1)

    @cached_property
    def axes(self) -> tuple[Tensor, Tensor]:
        """[k, d] eigenvalues of the products, ascending, and [k, d, d] their axes."""
        return torch.linalg.eigh(self.gram)


def moments(vectors: Tensor, parts: Parts) -> Moments:
    """One pass over the vectors, in the precision in which they come; sums of many are in double precision."""
    fit, choose, judge = (vectors[:, mask] for mask in (parts.fit, parts.choose, parts.judge))
    mean = fit.mean(1, keepdim=True, dtype=torch.float64)
    near = mean.to(fit)
    gram = vectors.new_zeros(len(vectors), vectors.shape[-1], vectors.shape[-1], dtype=torch.float64)
    fit, choose, judge = fit - near, choose - near, judge - near
    for some in fit.split(SUMMED if fit.dtype != torch.float64 else fit.shape[1], 1):
        gram += some.mT @ some
    return Moments(mean, fit, choose, judge, gram, _spread(gram, fit.shape[1]).amax(-1, keepdim=True))


def _spread(gram: Tensor, count: int) -> Tensor:
    return (gram.diagonal(dim1=-2, dim2=-1).clamp(min=0) / count).sqrt()


def fit_probes(
    found: Moments, labels: Mapping[Name, Tensor], parts: Parts, penalties: Sequence[float] = PENALTIES
) -> dict[Name, Probe]:
    """A probe for each set of labels [n], whole numbers from 0 on; each with the penalty that suits it best."""
    one_hot = {name: F.one_hot(label) for name, label in labels.items()}
    widths = [columns.shape[1] for columns in one_hot.values()]
    columns = torch.cat([each[parts.fit] for each in one_hot.values()], 1).double()
    offset = columns.mean(0)
    tried = _ridges(found, columns - offset, penalties)
    scores = _scores(found.choose, tried, offset)
    # [p, k, d, c] and [k, n, p, c] in the columns of each set of labels.
    each = zip(labels.items(), tried.split(widths, -1), scores.split(widths, -1), offset.split(widths), strict=True)
    number = torch.arange(len(found.gram), device=offset.device)
    return {
        name: _best(found, label, parts, penalties, weights, told.argmax(-1), mean, number)
        for (name, label), weights, told, mean in each
    }


def _ridges(found: Moments, columns: Tensor, penalties: Sequence[float]) -> Tensor:
    """[p, k, d, c] weights for the vectors, one for each penalty."""
    scale = found.scale
    gram, right = scale * found.gram * scale.mT, scale * found.with_labels(columns)
    most = (len(columns) * columns.square().sum(0)).sqrt()  # of numbers with unit spread
    right = torch.where(right.abs() > ROUNDING * most, right, 0.0)
    unit = gram.diagonal(dim1=-2, dim2=-1).mean(-1)
    unit = torch.where(unit > 0, unit, 1.0)[:, None, None]
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factors = (_factor(gram + penalty * unit * eye) for penalty in penalties)
    return torch.stack([found.mapped(scale * torch.cholesky_solve(right, factor)) for factor in factors])


def _factor(products: Tensor) -> Tensor:
    """[k, d, d] lower triangles of products with a penalty. Of what hardly varies next to the rest, rounding can make
    more than a small penalty adds: such axes count as what the penalty leaves at least."""
    factor, failed = torch.linalg.cholesky_ex(products)
    if not bool(failed.any()):
        return factor
    values, axes = torch.linalg.eigh(products)
    values = torch.maximum(values, SMALLEST_SPREAD * values[..., -1:])
    _, upper = torch.linalg.qr(values.sqrt().unsqueeze(-1) * axes.mT)
    return torch.where((failed > 0)[:, None, None], upper.mT, factor)


def _scores(vectors: Tensor, tried: Tensor, offset: Tensor) -> Tensor:
    """[k, n, p, c]: all penalties and labels in one product."""
    weights = tried.permute(1, 2, 0, 3)
    found = vectors @ weights.flatten(2).to(vectors)
    return found.unflatten(-1, weights.shape[2:]) + offset.to(vectors)


def _best(
    found: Moments,
    label: Tensor,
    parts: Parts,
    penalties: Sequence[float],
    weights: Tensor,
    told: Tensor,
    offset: Tensor,
    number: Tensor,
) -> Probe:
    """The probe with the penalty that tells most of the choosing vectors, [k, n, p], rightly; of several that do, the
    largest. Where a model holds a label so that it is read without a mistake, several do, often all. The smallest would
    have the probe weigh directions along which hardly anything varies more than loud ones, if they are a little less
    noisy: a model need not use these, so that taking them out costs nothing, and iterated projection spent all its rank
    on them. With the largest it reads along the directions that vary most with the label. Only choosing vectors of all
    classes ask for that: one that never names a class is right on those that lack it, and the largest penalties never
    name rare ones. There the smallest is taken.
    """
    chosen = label[parts.choose]
    fitted, asked = (F.one_hot(label)[part].any(0) for part in (parts.fit, parts.choose))
    tried = torch.tensor(penalties, dtype=torch.float64, device=chosen.device)
    wanted = tried if bool((asked | ~fitted).all()) else -tried
    shares = balanced_share((told == chosen[:, None]).mT, chosen)  # [k, p]
    best = torch.where(shares == shares.amax(-1, keepdim=True), wanted, -torch.inf).argmax(-1)  # [k]
    weight = weights[best, number]
    judged = label[parts.judge]
    right = (found.judge @ weight.to(found.judge) + offset.to(found.judge)).argmax(-1) == judged
    return Probe(found.mean, weight, offset, tried[best], right, balanced_share(right, judged))


def axes_of(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal axes [k, d, c] of the span of a few columns [k, d, c], and their sizes [k, c], largest first; axes
    beyond the span are zero. By the small matrix of the columns' products: that is one launch for all models."""
    values, turn = torch.linalg.eigh(columns.mT @ columns)
    sizes = values.flip(-1).clamp(min=0).sqrt()
    alive = sizes > SMALLEST_SPREAD * sizes[..., :1]
    inverse = torch.where(alive, 1 / sizes, 0.0)
    return (columns @ turn.flip(-1)) * inverse.unsqueeze(-2), sizes * alive


def balanced_by_document(right: Tensor, label: Tensor, document: Tensor) -> Tensor:
    """[..., documents] values whose mean is the balanced share, and which scatter as it does: how far each document's
    own vectors [..., n], those with its number [n], take it from there."""
    right, often = right.double(), F.one_hot(label).double().sum(0)
    shares = (right @ F.one_hot(label).double()) / often.clamp(min=1)
    off = (right - shares[..., label]) / (often[label] * (often > 0).sum())
    _, number = document.unique(return_inverse=True)
    count = int(number.max()) + 1
    own = off.new_zeros(*off.shape[:-1], count).index_add_(-1, number, off)
    return shares[..., often > 0].mean(-1, keepdim=True) + count * own


def balanced_share(right: Tensor, label: Tensor) -> Tensor:
    """[...] mean over the classes that occur of the share that is right [..., n]."""
    one_hot = F.one_hot(label).double()
    often = one_hot.sum(0)
    return ((right.double() @ one_hot)[..., often > 0] / often[often > 0]).mean(-1)

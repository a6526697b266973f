"""Logistic regression, as a cross-check of ridge probes: another loss, the same question."""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.probing.ridge import Moments, Parts, balanced_share

PENALTY = 1e-3
"""On the squared weights, beside the mean loss."""
ROUNDS = 100


def logistic_accuracy(found: Moments, label: Tensor, parts: Parts) -> Tensor:
    """[k] balanced accuracy on the vectors that judge; the sum of k losses is minimised, so each is."""
    scale, classes = found.scale.mT.to(found.fit), int(label.max()) + 1
    known = found.fit * scale
    models, _, width = known.shape
    target = label[parts.fit].expand(models, -1).flatten()
    weight = torch.zeros(models, width, classes, dtype=known.dtype, device=known.device, requires_grad=True)
    offset = torch.zeros(models, 1, classes, dtype=known.dtype, device=known.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, offset], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy((known @ weight + offset).flatten(0, 1), target) * models
        loss = loss + PENALTY * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(closure)
    scores = (found.judge * scale) @ weight.detach() + offset.detach()
    judged = label[parts.judge]
    return balanced_share(scores.argmax(-1) == judged, judged)

"""The loss and the scores: one definition of each number."""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.tasks import UNSCORED


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the scored entries of logits [b, q, v] and targets [b, q]."""
    return F.cross_entropy(_wide(logits).flatten(0, 1), targets.flatten(), ignore_index=UNSCORED)


def answer_likelihood(logits: Tensor, targets: Tensor) -> Tensor:
    """Probability of each target: [..., v], [...] -> [...], in at least single precision."""
    log_p = torch.log_softmax(_wide(logits), -1)
    return log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1).exp()


def answer_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Whether the target's logit is larger than any other in the vocabulary; an argmax would take ten times as long."""
    targets = targets.unsqueeze(-1)
    others = logits.scatter(-1, targets, float("-inf")).amax(-1)
    return logits.gather(-1, targets).squeeze(-1) > others


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))

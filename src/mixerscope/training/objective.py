"""What is minimised, and the scores: one definition of each number."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.model import Model
from mixerscope.spec import Spec
from mixerscope.tasks import UNSCORED, Batch
from mixerscope.training.head import head_loss


class Objective(Spec):
    """What training minimises, handed to the trainer from above; fields are its settings.

    It registers under a name as mixers and tasks do (`train.objective`), from outside too.
    """

    revision: ClassVar[int] = 1
    """Raised when what it computes or a default changes."""
    is_mean: ClassVar[bool] = False
    """Whether the loss of a batch is the mean of losses of its scored positions, so that parts of a batch can be
    computed one after the other, the longest documents for themselves."""

    def columns(self, documents: Batch) -> Mapping[str, Tensor]:
        """What else a step must know of each training document: name to [n, ...], cut into the same batches."""
        return {}

    @abstractmethod
    def loss(self, model: Model, rows: Tensor, read: Tensor, targets: Tensor, more: Mapping[str, Tensor]) -> Tensor:
        """The loss of one model on one batch, a scalar: from looked-up embeddings [b, t, d], the scored positions and
        targets [b, q], and the batch's part of `columns`."""


class Answer(Objective):
    """Cross-entropy at the scored positions."""

    is_mean: ClassVar[bool] = True

    def loss(self, model: Model, rows: Tensor, read: Tensor, targets: Tensor, more: Mapping[str, Tensor]) -> Tensor:
        x = model.head_input(model.through_blocks(model.embed_rows(rows), read))
        return head_loss(x.flatten(0, 1), model.token_embedding.weight, targets.flatten())


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

"""What is measured of one run over the documents: a few numbers per document, all from one pass."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.training.objective import answer_correct, answer_likelihood


@dataclass(frozen=True)
class Effects:
    """[n] each: probability of the original answer, whether it has the largest logit, and its logit."""

    likelihood: Tensor
    accuracy: Tensor
    logit: Tensor

    @staticmethod
    def of(logits: Tensor, answers: Tensor) -> "Effects":
        """From logits [n, v] and answers [n]."""
        return Effects(
            answer_likelihood(logits, answers),
            answer_correct(logits, answers).to(torch.float32),
            logits.gather(1, answers[:, None])[:, 0],
        )

    @staticmethod
    def join(parts: list["Effects"]) -> "Effects":
        return Effects(
            torch.cat([part.likelihood for part in parts]),
            torch.cat([part.accuracy for part in parts]),
            torch.cat([part.logit for part in parts]),
        )

    def rows(self, part: slice) -> "Effects":
        return Effects(self.likelihood[part], self.accuracy[part], self.logit[part])

    def non_finite(self) -> int:
        """Documents with a number that is not finite."""
        return int((~(self.likelihood.isfinite() & self.logit.isfinite())).sum())

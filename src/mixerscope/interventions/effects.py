"""What is measured of one run over the documents: a few numbers per document, all from one pass."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mixerscope.artifacts.effects import METRICS
from mixerscope.showing import Shown
from mixerscope.tasks import UNSCORED
from mixerscope.training.objective import answer_correct


@dataclass(frozen=True, repr=False)
class Effects(Shown):
    """[n] each, [n, q] where several reads are kept together, or [..., n, q] of several runs."""

    likelihood: Tensor
    """Probability of the symbol that is asked for, mostly the original answer."""
    accuracy: Tensor
    """Whether it has the largest logit."""
    logit: Tensor
    """Its logit."""
    logit_difference: Tensor
    """Its logit minus that of the counterfactual's answer; see `counterfactual_or_runner_up`."""
    kl: Tensor
    """KL(unedited run || this run) over the vocabulary, in nats; zero for the unedited run itself."""

    def sentence(self) -> str:
        """One line for people."""
        likelihood, accuracy = self.likelihood.double().mean(), self.accuracy.double().mean()
        size = " x ".join(map(str, self.likelihood.shape))
        return f"mean likelihood {likelihood:.3f}, accuracy {accuracy:.3f}, {size} numbers each"

    @staticmethod
    def of(
        logits: Tensor, answers: Tensor, counterfactuals: Tensor | None = None, unedited: "Distribution | None" = None
    ) -> "Effects":
        """From logits [..., n, v], answers [n], counterfactual answers [n] (default: the runner-up), and what the
        unedited run says; [n, q] in place of [n] of several reads."""
        log_p = log_probabilities(logits)
        found = Effects.unedited(logits, log_p, answers, counterfactuals)
        if unedited is None:
            return found
        # In place: fresh memory of this size costs more than the arithmetic. Rounding can leave it above zero.
        return replace(found, kl=log_p.sub_(unedited.log_p).mul_(unedited.p).sum(-1).clamp(max=0).abs())

    @staticmethod
    def unedited(logits: Tensor, log_p: Tensor, answers: Tensor, counterfactuals: Tensor | None = None) -> "Effects":
        """The same of a run whose log-probabilities [..., n, v] are known, and which is compared with no other."""
        answers = answers.expand(logits.shape[:-1])
        logit = _of_symbol(logits, answers)
        likelihood = _of_symbol(log_p, answers).exp()
        found = Effects(
            likelihood, answer_correct(logits, answers).to(torch.float32), logit, logit, torch.zeros_like(likelihood)
        )
        return found.against(logits, runner_up(logits, answers) if counterfactuals is None else counterfactuals)

    def against(self, logits: Tensor, counterfactuals: Tensor) -> "Effects":
        """The effects of the run with these logits [..., n, v], its answers compared with other symbols [n]."""
        return replace(
            self, logit_difference=self.logit - _of_symbol(logits, counterfactuals.expand(logits.shape[:-1]))
        )

    @staticmethod
    def join(parts: list["Effects"]) -> "Effects":
        if len(parts) == 1:
            return parts[0]
        return Effects(*(torch.cat(columns) for columns in zip(*(part.columns() for part in parts), strict=True)))

    def columns(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in METRICS)

    def cpu(self) -> "Effects":
        return Effects(*(column.cpu() for column in self.columns()))

    def rows(self, part: slice) -> "Effects":
        return Effects(*(column[part] for column in self.columns()))

    def table(self) -> Tensor:
        """[..., metrics, n, q]: the columns [..., n, q] in one tensor."""
        return torch.stack([column.to(self.likelihood.dtype) for column in self.columns()], -3)

    @staticmethod
    def of_table(table: Tensor) -> "Effects":
        """From [..., metrics, n, q]."""
        return Effects(*table.unbind(-3))

    def read(self, number: int) -> "Effects":
        """[n]: one of several reads."""
        return Effects(*(column[:, number] for column in self.columns()))


def non_finite(many: Sequence[Effects]) -> list[int]:
    """For each: how many documents have a number that is not finite. All in one go, as there may be thousands."""
    finite = [torch.stack(columns).isfinite() for columns in zip(*(one.columns() for one in many), strict=True)]
    sound = torch.stack(finite).all(0)  # [many, n] or [many, n, q]
    return (~sound.flatten(2).all(2) if sound.dim() > 2 else ~sound).sum(1).tolist()


assert tuple(field.name for field in fields(Effects)) == METRICS


class Distribution(NamedTuple):
    """Probabilities [n, v] and their logarithms, kept together because many cells are compared with the same ones."""

    p: Tensor
    log_p: Tensor

    @staticmethod
    def of(logits: Tensor) -> "Distribution":
        log_p = log_probabilities(logits)
        return Distribution(log_p.exp(), log_p)


def log_probabilities(logits: Tensor) -> Tensor:
    """In at least single precision."""
    return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)


def runner_up(logits: Tensor, answers: Tensor) -> Tensor:
    """[...] the symbol with the largest logit [..., v] among those that are not the answer."""
    return logits.scatter(-1, answers.unsqueeze(-1), float("-inf")).argmax(-1)


def _of_symbol(x: Tensor, symbols: Tensor) -> Tensor:
    """x [..., v] at one symbol each [...]."""
    return x.gather(-1, symbols.unsqueeze(-1)).squeeze(-1)


def counterfactual_or_runner_up(counterfactuals: Tensor | None, corrupted: Tensor, answers: Tensor) -> Tensor:
    """[n] the symbol each answer is compared with, one per document, the same for every edit.

    It is the answer that the corrupted document has. Where that document has none, or still has the original answer,
    it is the wrong symbol that the unedited run over the corrupted document (logits [n, v]) finds most likely.
    """
    found = runner_up(corrupted, answers)
    if counterfactuals is None:
        return found
    return torch.where((counterfactuals == UNSCORED) | (counterfactuals == answers), found, counterfactuals)

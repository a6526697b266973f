"""One trainer, for one model or many at once."""

from mixerscope.training.cohort import Evaluation, Member, Progress, train_cohort
from mixerscope.training.objective import answer_correct, answer_likelihood, cross_entropy

__all__ = [
    "Evaluation",
    "Member",
    "Progress",
    "answer_correct",
    "answer_likelihood",
    "cross_entropy",
    "train_cohort",
]

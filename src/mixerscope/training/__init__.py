"""One trainer, for one model or many at once."""

from mixerscope.training.cohort import (
    Evaluation,
    Member,
    Observer,
    Progress,
    check_stackable,
    compile_cohort,
    train_cohort,
)
from mixerscope.training.objective import answer_correct, answer_likelihood, cross_entropy
from mixerscope.training.schedule import log_spaced

__all__ = [
    "Evaluation",
    "Member",
    "Observer",
    "Progress",
    "answer_correct",
    "answer_likelihood",
    "check_stackable",
    "compile_cohort",
    "cross_entropy",
    "log_spaced",
    "train_cohort",
]

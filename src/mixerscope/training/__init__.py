"""One trainer, for one model or many at once."""

from mixerscope.training.cohort import (
    Member,
    Observer,
    Progress,
    check_stackable,
    compile_cohort,
    train_cohort,
)
from mixerscope.training.objective import Answer, Objective, answer_correct, answer_likelihood, cross_entropy
from mixerscope.training.schedule import log_spaced

__all__ = [
    "Answer",
    "Member",
    "Objective",
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

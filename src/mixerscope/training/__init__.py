"""One trainer, for one model or many at once."""

from mixerscope.training.kept import Keeper, Kept, Member
from mixerscope.training.objective import Answer, Objective, answer_correct, answer_likelihood, cross_entropy
from mixerscope.training.schedule import log_spaced
from mixerscope.training.trainer import (
    Observer,
    Progress,
    check_stackable,
    compile_cohort,
    train_cohort,
)

__all__ = [
    "Answer",
    "Keeper",
    "Kept",
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

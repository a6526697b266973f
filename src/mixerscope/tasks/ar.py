"""Associative recall: pairs of keys and values, then a key whose value is asked."""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.tasks.base import EOS, PAD, UNSCORED, Batch
from mixerscope.tasks.recall import Context, Recall


class AR(Recall):
    """Associative recall. With two pairs and one query:

        position  0    1   2   3   4   5      6   7   8
        tokens    BOS  k5  v2  k1  v7  EOS    k1  v7  EOS
        targets   .    .   .   .   .   .      v7  .   .
        roles                  key value divider query

    Keys are distinct within a document, and so are values; any key may stand with any value. The query is one of the
    document's keys (or values, with `query="value"`). More queries put `query answer` again before the last EOS, all
    distinct; roles then name the first one.
    """

    presets = {
        "paper": {},
        "small": {"num_pairs": 4, "num_keys": 8, "num_values": 8, "num_queries": 2},
        "paper-as-written": {"num_pairs": 32},
        "value-first": {"query": "value"},
        "variable": {"min_pairs": 4},
        "held-out": {"held_out": 0.2},
        "noisy": {"noise": 16, "num_fillers": 64},
        "distractors": {"distractors": 3, "min_distractors": 0, "num_fillers": 64},
        "overwrite": {"repeated_keys": 4},
    }

    @property
    def max_length(self) -> int:
        return self.context_length + 2 * self.num_queries + 1

    def _ask(self, context: Context, asked: Tensor, rng: torch.Generator) -> Batch:
        tokens = F.pad(context.tokens, (0, 2 * self.num_queries + 1), value=PAD)
        targets = torch.full_like(tokens, UNSCORED)
        by_key = self.query == "key"
        questions, answers = (context.keys, context.values) if by_key else (context.values, context.keys)
        question, answer = questions.gather(1, asked), answers.gather(1, asked)
        at = context.divider[:, None] + 1 + 2 * torch.arange(self.num_queries)
        tokens.scatter_(1, at, question).scatter_(1, at + 1, answer).scatter_(1, at[:, -1:] + 2, EOS)
        targets.scatter_(1, at, answer)
        return self._described(tokens, targets, context, asked, at[:, 0])

    def _with_answer(self, tokens: Tensor, query: Tensor, answers: Tensor) -> Tensor:
        return tokens.scatter(1, query[:, None] + 1, answers[:, None])

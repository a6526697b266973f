"""Guessing: the accuracy that can be had without solving the task, below which accuracy means nothing."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mixerscope.randomness import stream
from mixerscope.tasks.base import UNSCORED, Batch, Split, Task


@dataclass(frozen=True)
class Guess:
    """A rule fitted to training documents and its accuracy on other ones."""

    name: str
    rule: str
    """The rule in words."""
    accuracy: float


def guessing_baselines(
    task: Task, *, seed: int = 0, fit: int = 10_000, score: int = 2_000, last: tuple[int, ...] | None = None
) -> list[Guess]:
    """The most frequent answer, the best fixed position, and a table from the last k tokens to their usual answer.

    Rules are fitted to `fit` documents of the training split and scored on `score` of the test split; `last` are the k,
    the task's own `windows` if left out.
    """
    task = task.single_query()
    known = _asked(task, fit, seed, "train")
    new = _asked(task, score, seed, "test")
    usual = int(known[2].mode().values)
    guesses = [Guess("most frequent answer", f"always {task.symbol(usual)}", _share(new[2] == usual))]
    guesses.append(_best_position(known, new))
    guesses.extend(_last_tokens(known, new, k, usual) for k in (task.windows if last is None else last))
    return guesses


_BEST: WeakKeyDictionary[type[Task], dict[str, float]] = WeakKeyDictionary()
"""By class and settings: a copy of a task with other settings is another task, and a class that was edited another."""


def best_guess(task: Task) -> float:
    """The accuracy of the best of the guessing rules, which read one fixed position, the last tokens, or nothing."""
    known, settings = _BEST.setdefault(type(task), {}), task.model_dump_json()
    if settings not in known:
        known[settings] = max(guess.accuracy for guess in guessing_baselines(task))
    return known[settings]


def ceiling(task: Task, *, seed: int = 0, n: int = 1000) -> float:
    """The share of documents that mean one answer only: the most a model can be sure to get right."""
    batch = task.sample(n, stream(seed, "ceiling"), "test")
    return 1.0 - _share(task.ambiguous(batch))


Asked = tuple[Tensor, Tensor, Tensor]
"""[n, t] tokens, [n] scored positions, [n] answers."""


def _asked(task: Task, n: int, seed: int, split: Split) -> Asked:
    batch: Batch = task.sample(n, stream(seed, "baselines", split), split)
    positions, answers = batch.answers()
    return batch.tokens, positions, answers


def _share(right: Tensor) -> float:
    return float(right.double().mean())


def _best_position(known: Asked, new: Asked) -> Guess:
    """Copies the token at a fixed distance from the start or from the query, whichever is best on known documents."""

    def copied(asked: Asked, from_query: bool, offset: int) -> Tensor:
        tokens, positions, answers = asked
        at = positions - offset if from_query else torch.full_like(positions, offset)
        valid = (at >= 0) & (at < positions)  # the answer itself stands behind the query
        token = tokens.gather(1, at.clamp(0, tokens.shape[1] - 1)[:, None])[:, 0]
        return valid & (token == answers)

    rules = [(from_query, offset) for from_query in (False, True) for offset in range(known[0].shape[1])]
    shares = [_share(copied(known, *rule)) for rule in rules]
    from_query, offset = rules[max(range(len(rules)), key=shares.__getitem__)]
    where = f"{offset} before the query" if from_query else f"at position {offset}"
    return Guess("position only", f"the token {where}", _share(copied(new, from_query, offset)))


def _last_tokens(known: Asked, new: Asked, k: int, usual: int) -> Guess:
    """The usual answer after the same last k tokens, the query included; the most frequent one where they are new."""

    def contexts(asked: Asked) -> Tensor:
        tokens, positions, _ = asked
        at = (positions[:, None] - torch.arange(k)).clamp(min=0)
        return tokens.gather(1, at)

    seen, inverse = torch.unique(torch.cat([contexts(known), contexts(new)]), dim=0, return_inverse=True)
    answers, answer_of = torch.unique(known[2], return_inverse=True)
    count = len(known[2])
    pairs, times = torch.unique(inverse[:count] * len(answers) + answer_of, return_counts=True)
    table = torch.full((len(seen),), UNSCORED)
    context = pairs // len(answers)
    # Sorted by context and then frequency, the last answer of each context is its usual one.
    order = times.argsort(stable=True)
    order = order[context[order].argsort(stable=True)]
    is_usual = torch.ones(len(order), dtype=torch.bool)
    is_usual[:-1] = context[order][1:] != context[order][:-1]
    best = order[is_usual]
    table[context[best]] = answers[pairs[best] % len(answers)]
    guess = table[inverse[count:]]
    guess = torch.where(guess == UNSCORED, usual, guess)
    return Guess(f"last {k} token{'s' if k > 1 else ''}", "the usual answer after them", _share(guess == new[2]))

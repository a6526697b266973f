"""Guessing: the accuracy that can be had without solving the task, below which accuracy means nothing."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mixerscope.randomness import stream
from mixerscope.tasks.base import UNSCORED, Batch, Split, Task

FITTED, SCORED = 130_000, 65_000
"""Questions, roughly, to which rules for every question are fitted at most, and on which they are scored."""


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
    known, new = _last(_draw(task, fit, seed, "train")), _last(_draw(task, score, seed, "test"))
    return [_always(task, known, new), *_fitted(known, new, task.windows if last is None else last)]


def guessing_of_all(task: Task, *, seed: int = 0, fit: int = 10_000, score: int = 2_000) -> list[Guess]:
    """The same rules for every question of a document, and once more for the questions of each position by themselves:
    where a question stands is no secret. Of long documents there are fewer."""
    fit, score = (min(n, math.ceil(most / task.max_length)) for n, most in ((fit, FITTED), (score, SCORED)))
    known, new = _every(_draw(task, fit, seed, "train")), _every(_draw(task, score, seed, "test"))
    guesses = [_always(task, known, new), *_fitted(known, new, task.windows)]
    for guess in _fitted(known.by_position(), new.by_position(), (0, *task.windows)):
        guesses.append(Guess(f"{guess.name}, by position", "the same at each position by itself", guess.accuracy))
    return guesses


_BEST: WeakKeyDictionary[type[Task], dict[tuple[str, str], float]] = WeakKeyDictionary()
"""By class, and by which questions and settings: a copy of a task with other settings is another task, and a class that
was edited another."""


def best_guess(task: Task) -> float:
    """The accuracy of the best of the guessing rules, which read one fixed position, the last tokens, or nothing."""
    return _best("last", task, lambda: guessing_baselines(task))


def best_guess_of_all(task: Task) -> float:
    """The same over every question, as a mean over documents, of rules that may know the position too."""
    return _best("every", task, lambda: guessing_of_all(task))


def _best(questions: str, task: Task, guesses: Callable[[], list[Guess]]) -> float:
    known, key = _BEST.setdefault(type(task), {}), (questions, task.model_dump_json())
    if key not in known:
        known[key] = max(guess.accuracy for guess in guesses())
    return known[key]


def ceiling(task: Task, *, seed: int = 0, n: int = 1000) -> float:
    """The share of documents that mean one answer only: the most a model can be sure to get right."""
    batch = task.sample(n, stream(seed, "ceiling"), "test")
    return 1.0 - float(task.ambiguous(batch).double().mean())


@dataclass(frozen=True)
class _Asked:
    """Questions [m] about documents."""

    tokens: Tensor
    """[n, t]"""
    document: Tensor
    position: Tensor
    answer: Tensor
    group: Tensor
    """Rules are fitted to the questions of each group by themselves."""

    def by_position(self) -> "_Asked":
        """Those of each position by themselves."""
        return replace(self, group=self.position)

    def share(self, right: Tensor) -> float:
        """Of right answers [m], as a mean over documents."""
        asked = torch.bincount(self.document)
        shares = torch.bincount(self.document, right.double()) / asked
        return float(shares[asked > 0].mean())


def _draw(task: Task, n: int, seed: int, split: Split) -> Batch:
    return task.sample(n, stream(seed, "baselines", split), split)


def _last(batch: Batch) -> _Asked:
    """The one question of each document."""
    position, answer = batch.answers()
    return _Asked(batch.tokens, torch.arange(len(batch)), position, answer, torch.zeros_like(position))


def _every(batch: Batch) -> _Asked:
    document, position = (batch.targets != UNSCORED).nonzero(as_tuple=True)
    answer = batch.targets[document, position]
    return _Asked(batch.tokens, document, position, answer, torch.zeros_like(position))


def _always(task: Task, known: _Asked, new: _Asked) -> Guess:
    usual = int(known.answer.mode().values)
    return Guess("most frequent answer", f"always {task.symbol(usual)}", new.share(new.answer == usual))


def _fitted(known: _Asked, new: _Asked, windows: tuple[int, ...]) -> list[Guess]:
    return [_best_position(known, new), *(_last_tokens(known, new, k) for k in windows)]


def _best_position(known: _Asked, new: _Asked) -> Guess:
    """Copies the token at a fixed distance from the start or from the query, whichever is best on known documents."""

    def copied(asked: _Asked, from_query: bool, offset: int) -> Tensor:
        at = asked.position - offset if from_query else torch.full_like(asked.position, offset)
        valid = (at >= 0) & (at < asked.position)  # the answer itself stands behind the query
        token = asked.tokens[asked.document, at.clamp(0, asked.tokens.shape[1] - 1)]
        return valid & (token == asked.answer)

    rules = [(from_query, offset) for from_query in (False, True) for offset in range(known.tokens.shape[1])]
    groups = 1 + int(torch.cat([known.group, new.group]).max())
    times = torch.stack([torch.bincount(known.group, copied(known, *rule).double(), groups) for rule in rules])
    best = times.argmax(0)
    right = torch.zeros_like(new.group, dtype=torch.bool)
    for rule in best.unique().tolist():
        right |= copied(new, *rules[rule]) & (best[new.group] == rule)
    from_query, offset = rules[int(times.sum(1).argmax())]
    where = f"{offset} before the query" if from_query else f"at position {offset}"
    return Guess("position only", f"the token {where}", new.share(right))


def _last_tokens(known: _Asked, new: _Asked, k: int) -> Guess:
    """The usual answer after the same last k tokens, the query included; the most frequent one where they are new."""

    def contexts(asked: _Asked) -> Tensor:
        at = (asked.position[:, None] - torch.arange(k)).clamp(min=0)
        return torch.cat([asked.group[:, None], asked.tokens[asked.document[:, None], at]], 1)

    inverse = _numbered(torch.cat([contexts(known), contexts(new)]))
    answers, answer_of = torch.unique(known.answer, return_inverse=True)
    count = len(known.answer)
    pairs, times = torch.unique(inverse[:count] * len(answers) + answer_of, return_counts=True)
    table = torch.full((1 + int(inverse.max()),), UNSCORED)
    context = pairs // len(answers)
    # Sorted by context and then frequency, the last answer of each context is its usual one.
    order = times.argsort(stable=True)
    order = order[context[order].argsort(stable=True)]
    is_usual = torch.ones(len(order), dtype=torch.bool)
    is_usual[:-1] = context[order][1:] != context[order][:-1]
    best = order[is_usual]
    table[context[best]] = answers[pairs[best] % len(answers)]
    guess = table[inverse[count:]]
    guess = torch.where(guess == UNSCORED, known.answer.mode().values, guess)
    name = f"last {k} token{'s' if k > 1 else ''}" if k else "most frequent answer"
    return Guess(name, "the usual answer after them", new.share(guess == new.answer))


def _numbered(rows: Tensor) -> Tensor:
    """[m] a number for each different row [m, c], column by column: sorting numbers is quicker than sorting rows."""
    number = torch.zeros_like(rows[:, 0])
    for column in rows.unbind(1):
        number = torch.unique(number * (1 + column.max()) + column, return_inverse=True)[1]
    return number

"""Grammars as values: probabilistic, context-free, without recursion, every phrase headed by a terminal."""

from functools import cached_property, lru_cache
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from mixerscope.errors import UserError
from mixerscope.randomness import stream
from mixerscope.spec.base import Spec, digest

Head = Literal["right", "left"]


class Grammar(Spec):
    """A grammar written out. A phrase X is `body head` (right-headed) or `head body`.

    The body is fixed by the rule; the head is drawn afresh from X's head distribution whenever X is expanded, and is
    the parent of every terminal in the body and of the head of every phrase in it. Symbols of a body are numbers: a
    terminal t is t, a nonterminal X is -1 - X. Any nonterminal may start a document, with equal chance.
    """

    head: Head = "right"
    num_terminals: PositiveInt
    bodies: tuple[tuple[tuple[int, ...], ...], ...]
    """For each nonterminal its rules, each the symbols of its body."""
    weights: tuple[tuple[float, ...], ...]
    """For each nonterminal the probabilities of its rules."""
    head_weights: tuple[tuple[float, ...], ...]
    """For each nonterminal the probabilities of the terminals as its head."""

    @model_validator(mode="after")
    def _is_a_grammar(self) -> Any:
        if not self.bodies:
            raise ValueError("a grammar needs at least one nonterminal")
        for name, rows in (("weights", self.weights), ("head_weights", self.head_weights)):
            if len(rows) != len(self.bodies):
                raise ValueError(f"{name} has {len(rows)} rows for {len(self.bodies)} nonterminals")
        for x, rules in enumerate(self.bodies):
            if not rules:
                raise ValueError(f"nonterminal N{x} has no rule")
            for body in rules:
                if not body:
                    raise ValueError(f"a rule of N{x} has an empty body")
                if not all(-len(self.bodies) <= symbol < self.num_terminals for symbol in body):
                    raise ValueError(f"a rule of N{x} names a symbol that does not exist: {list(body)}")
            for name, row, length in (
                ("weights", self.weights[x], len(rules)),
                ("head_weights", self.head_weights[x], self.num_terminals),
            ):
                if len(row) != length or min(row) < 0 or abs(sum(row) - 1) > 1e-6:
                    raise ValueError(f"{name} of N{x} must be {length} probabilities that sum to 1")
        if len(self.expansion_order) < len(self.bodies):
            raise ValueError("the grammar is recursive: some phrase can contain itself")
        return self

    @cached_property
    def digest(self) -> str:
        """sha256 of the grammar."""
        return digest(self.model_dump(mode="json"))

    @cached_property
    def expansion_order(self) -> tuple[int, ...]:
        """The nonterminals, each after all that can occur in its bodies; short of some if the grammar is recursive."""
        done: dict[int, None] = {}
        needs = [{-1 - s for body in rules for s in body if s < 0} for rules in self.bodies]
        while ready := [x for x, inside in enumerate(needs) if x not in done and inside <= done.keys()]:
            done.update(dict.fromkeys(ready))
        return tuple(done)

    @cached_property
    def longest(self) -> int:
        """Symbols of the longest string."""
        size: dict[int, int] = {}
        for x in self.expansion_order:
            size[x] = 1 + max(sum(1 if s >= 0 else size[-1 - s] for s in body) for body in self.bodies[x])
        return max(size.values())

    @cached_property
    def deepest(self) -> int:
        """Edges from the root of the deepest tree to its deepest terminal."""
        depth: dict[int, int] = {}
        for x in self.expansion_order:
            depth[x] = 1 + max(0 if s >= 0 else depth[-1 - s] for body in self.bodies[x] for s in body)
        return max(depth.values())

    @cached_property
    def mean_length(self) -> float:
        """Expected symbols of a string, given that it has the three that a document needs at least."""
        mean: dict[int, float] = {}
        two: list[float] = []  # chance of a string of two symbols
        for x in self.expansion_order:
            rules = list(zip(self.bodies[x], self.weights[x], strict=True))
            mean[x] = 1 + sum(p * sum(1.0 if s >= 0 else mean[-1 - s] for s in body) for body, p in rules)
            two.append(sum(p for body, p in rules if len(body) == 1 and body[0] >= 0))
        all_mean, short = float(np.mean(list(mean.values()))), float(np.mean(two))
        return (all_mean - 2 * short) / (1 - short) if short < 1 else 2.0

    @cached_property
    def tables(self) -> "Tables":
        """The grammar as arrays, for sampling."""
        return Tables(self)

    def describe(self) -> list[str]:
        """The grammar as lines of text: each nonterminal, its likeliest heads and its rules."""

        def name(symbol: int) -> str:
            return f"t{symbol}" if symbol >= 0 else f"N{-1 - symbol}"

        lines = [
            f"{len(self.bodies)} nonterminals, {self.num_terminals} terminals, {sum(map(len, self.bodies))} rules,"
            f" {self.head}-headed, mean length {self.mean_length:.1f}, longest {self.longest},"
            f" sha256 {self.digest[:12]}"
        ]
        for x, rules in enumerate(self.bodies):
            heads = sorted(range(self.num_terminals), key=lambda t: -self.head_weights[x][t])[:3]
            shown = ", ".join(f"t{t} {self.head_weights[x][t]:.2f}" for t in heads)
            lines.append(f"N{x}  heads {shown}, ...")
            for body, p in zip(rules, self.weights[x], strict=True):
                symbols = [name(s) for s in body]
                phrase = [*symbols, "<head>"] if self.head == "right" else ["<head>", *symbols]
                lines.append(f"    {p:.3f}  {' '.join(phrase)}")
        return lines


class Tables:
    """Arrays of a grammar, all as if it were right-headed: a left-headed one is derived mirrored and turned round."""

    def __init__(self, grammar: Grammar) -> None:
        mirror = grammar.head == "left"
        bodies = [tuple(reversed(b)) if mirror else b for rules in grammar.bodies for b in rules]
        counts = np.array([len(rules) for rules in grammar.bodies])
        self.nonterminals = len(counts)
        # A sum of number and draw may round up to the next number; the draw then means the last of its row.
        self.last_rule: NDArray[np.int64] = counts.cumsum() - 1
        self.rule_cdf = _stacked_cdf([np.array(row) for row in grammar.weights])
        self.head_cdf = _stacked_cdf([np.array(row) for row in grammar.head_weights])
        self.num_terminals = grammar.num_terminals
        self.body_length: NDArray[np.int64] = np.array([len(body) for body in bodies])
        self.body_start: NDArray[np.int64] = np.concatenate([[0], self.body_length.cumsum()[:-1]])
        self.symbols: NDArray[np.int64] = np.array([symbol for body in bodies for symbol in body])
        # The least a phrase adds to its document: its head and one symbol for each in the body, two for a phrase.
        least = np.where(self.symbols < 0, 2, 1)
        self.least: NDArray[np.int64] = 1 + np.add.reduceat(least, self.body_start)

    def draw_rules(self, phrase: NDArray[np.int64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """A rule for each nonterminal."""
        return np.minimum(np.searchsorted(self.rule_cdf, phrase + uniform, side="right"), self.last_rule[phrase])

    def draw_heads(self, phrase: NDArray[np.int64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """A head terminal for each nonterminal."""
        found = np.searchsorted(self.head_cdf, phrase + uniform, side="right") - phrase * self.num_terminals
        return np.minimum(found, self.num_terminals - 1)


def _stacked_cdf(rows: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Cumulative weights of all rows in one ascending array, row i rising from i to i + 1: one search serves all."""
    parts = []
    for i, row in enumerate(rows):
        cdf = row.cumsum()
        # Rounding must neither leave a gap below i + 1 nor let a weightless tail be drawn.
        cdf[cdf >= cdf[-1]] = np.inf
        parts.append(i + np.minimum(cdf / row.sum(), 1.0))
    return np.concatenate(parts)


class GrammarRecipe(Spec):
    """How to draw a grammar at random, as published; the seed says which one."""

    head: Head = "right"
    """On which side of its phrase the parent stands."""
    num_nonterminals: PositiveInt = 40
    num_terminals: int = Field(default=20, ge=2)
    max_depth: PositiveInt = 10
    """Each nonterminal gets a depth up to this, and its rules only name deeper ones: no recursion."""
    max_rule_length: int = Field(default=5, ge=2)
    """Most symbols of a rule, its head included."""
    max_rules: PositiveInt = 5
    """Most rules of a nonterminal."""
    terminal_weight: float = Field(default=20.0, gt=0)
    """Weight of "a terminal" against 1 for each allowed nonterminal when a body is filled."""
    seed: NonNegativeInt = 0

    def grammar(self) -> Grammar:
        """The grammar of this recipe."""
        # Heads have a stream of their own, so that grammars with more terminals have the same rules.
        rule_stream, head_stream = stream(self.seed, "grammar", "rules"), stream(self.seed, "grammar", "heads")

        def uniform(size: int, rng: torch.Generator = rule_stream) -> NDArray[np.float64]:
            return torch.rand(size, generator=rng, dtype=torch.float64).numpy()

        depth = (uniform(self.num_nonterminals) * self.max_depth).astype(int)
        bodies, weights, heads = [], [], []
        for x in range(self.num_nonterminals):
            allowed = np.flatnonzero(depth > depth[x])
            rules = []
            for _ in range(1 + int(uniform(1)[0] * self.max_rules)):
                length = 1 + int(uniform(1)[0] * (self.max_rule_length - 1))
                slot = uniform(length) * (len(allowed) + self.terminal_weight)
                terminal = (uniform(length) * self.num_terminals).astype(int)
                rules.append(
                    tuple(
                        -1 - int(allowed[int(s)]) if s < len(allowed) else int(t)
                        for s, t in zip(slot, terminal, strict=True)
                    )
                )
            bodies.append(tuple(rules))
            weights.append(_dirichlet(uniform(len(rules))))
            heads.append(_dirichlet(uniform(self.num_terminals, head_stream)))
        return Grammar(
            head=self.head,
            num_terminals=self.num_terminals,
            bodies=tuple(bodies),
            weights=tuple(weights),
            head_weights=tuple(heads),
        )

    def with_mean_length(self, length: float, *, tolerance: float = 0.1, tries: int = 2000) -> Self:
        """The recipe with the first seed from its own on whose grammar has this mean length."""
        means = []
        for seed in range(self.seed, self.seed + tries):
            recipe = self.changed(seed=seed)
            means.append(recipe.grammar().mean_length)
            if abs(means[-1] - length) <= tolerance:
                return recipe
        raise UserError(
            f"none of {tries} grammars has a mean length of {length} +- {tolerance};"
            f" theirs range from {min(means):.1f} to {max(means):.1f}"
        )


def drawn_grammar(recipe: GrammarRecipe) -> Grammar:
    """The grammar of a recipe, drawn once."""
    return _drawn(recipe.model_dump_json())


@lru_cache(maxsize=32)
def _drawn(recipe: str) -> Grammar:
    return GrammarRecipe.model_validate_json(recipe).grammar()


def _dirichlet(uniform: NDArray[np.float64]) -> tuple[float, ...]:
    """A draw from the flat Dirichlet distribution: normalised exponentials."""
    exponential = -np.log1p(-uniform)
    return tuple((exponential / exponential.sum()).tolist())

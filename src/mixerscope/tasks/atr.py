"""Associative Treecall: a string with a hidden tree, then a symbol whose relative in the tree is asked."""

import re
from functools import cached_property
from typing import Any

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, model_validator
from torch import Tensor

from mixerscope.randomness import stream
from mixerscope.tasks.base import (
    BOS,
    EOS,
    FIRST_SYMBOL,
    SPECIAL_NAMES,
    UNSCORED,
    Batch,
    Change,
    Split,
    Symbols,
    Task,
    collect,
    split_generator,
)
from mixerscope.tasks.derivation import (
    Bools,
    Choice,
    Forest,
    Ints,
    Uniform,
    ancestor_steps,
    choose_pairs,
    derive,
    related,
    rightmost_occurrences,
)
from mixerscope.tasks.grammar import Grammar, GrammarRecipe, drawn_grammar
from mixerscope.tasks.mechanisms import PAIR, RETRIEVAL
from mixerscope.tasks.parse import Parser, check_trees, find_relative
from mixerscope.tasks.split import held_out_pairs, in_split, token_hashes

CHUNK = 4096
"""Documents derived at once; bounds the memory of a large sample."""
TRIAL = 1000
"""Documents derived when the task is built, to refuse a grammar that gives no usable one."""
_TRIED: set[tuple[type, str]] = set()
"""Settings that gave documents when they were tried: a sweep has hundreds of runs of one task."""
SHORTEST = 3
# The published grammars themselves are not known; these are the first whose mean lengths are the published ones.
MEAN_15: dict[str, Any] = {"seed": 860}
MEAN_39: dict[str, Any] = {"max_rule_length": 10, "seed": 314}
MEAN_8: dict[str, Any] = {"seed": 9}
PUBLISHED_RELATIONS = ("parent", "child", "sibling")


class ATR(Task):
    """Associative Treecall. A right-headed string of five symbols with the tree a<-c, b<-c, d<-e, c<-e:

        position  0    1   2   3   4   5   6    7   8   9
        tokens    BOS  a   b   c   d   e   EOS  b   c   EOS
        targets   .    .   .   .   .   .   .    c   .   .
        roles              key value       divider query

    The string is derived from a grammar in which each phrase is headed by a terminal, its last one (or its first):
    the parent of all other symbols of the phrase. A query is a symbol, meant in its rightmost occurrence; the answer
    is its parent. Other relations: `child` (the one farthest from the head), `sibling` (the rightmost child of the
    same parent, often the symbol itself), `grandparent`, and `ancestor-3` and higher. With several relations, a token
    that names the relation stands behind the query symbol and is the scored position.

    `labels["parents"]` is the tree: the position of each symbol's parent, -1 where there is none.
    """

    mechanisms = RETRIEVAL
    together = PAIR

    presets = {
        "paper": {"grammar": MEAN_15, "disjoint": False},
        "paper-l10": {"grammar": MEAN_39, "disjoint": False},
        "paper-8192": {"grammar": MEAN_15 | {"num_terminals": 8192}, "disjoint": False},
        "paper-l10-8192": {"grammar": MEAN_39 | {"num_terminals": 8192}, "disjoint": False},
        "paper-split": {"grammar": MEAN_8, "disjoint": False, "held_out": 0.2},
        "paper-sibling": {"grammar": MEAN_15, "disjoint": False, "relations": ("sibling",)},
        "disjoint": {"grammar": MEAN_15},
        "child": {"grammar": MEAN_15, "relations": ("child",)},
        "grandparent": {"grammar": MEAN_15, "relations": ("grandparent",)},
        "ancestor-3": {"grammar": MEAN_15, "relations": ("ancestor-3",)},
        "all-relations": {"grammar": MEAN_15, "relations": ("parent", "child", "sibling", "grandparent")},
        "left-headed": {"grammar": MEAN_15 | {"head": "left"}},
    }

    grammar: GrammarRecipe | Grammar = GrammarRecipe()
    """How the grammar is drawn, or the grammar itself."""
    relations: tuple[str, ...] = ("parent",)
    """What can be asked; one is drawn for each document among those it has an eligible query for."""
    max_symbols: int = Field(default=1019, ge=SHORTEST, le=30_000)
    """Longer strings are drawn again. The paper says 1024; with five tokens around it 1019 fits 1024 positions."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Chance of each (query, answer) pair of symbols to be asked in the test split only."""
    split_seed: NonNegativeInt = 0
    """Which pairs those are."""
    disjoint: bool = True
    """Whether a document can be in one of train, dev and test only, by its hash. Short documents are common ones, so
    this shifts the three distributions against each other; the published documents are drawn without it."""

    @model_validator(mode="after")
    def _is_possible(self) -> Any:
        if not self.relations or len(set(self.relations)) < len(self.relations):
            raise ValueError("relations must name at least one relation, and none twice")
        deepest = self.rules.deepest
        for relation in self.relations:
            if relation not in (*PUBLISHED_RELATIONS, "grandparent") and not re.fullmatch(
                "ancestor-([3-9]|[1-9][0-9])", relation
            ):
                raise ValueError(
                    f"no relation named {relation!r}; known: parent, child, sibling, grandparent, ancestor-3, ..."
                )
            if relation not in PUBLISHED_RELATIONS and ancestor_steps(relation) > deepest:
                raise ValueError(f"no query can ask {relation!r}: the deepest tree of the grammar has {deepest} levels")
        if self.rules.num_terminals < 2:
            raise ValueError("a grammar with one terminal leaves nothing to ask and nothing to corrupt with")
        if self.rules.longest < SHORTEST:
            raise ValueError(f"no string of the grammar has the {SHORTEST} symbols that a query needs")
        if self.split_seed and not self.held_out:
            raise ValueError(f"split_seed = {self.split_seed} has no use without held_out")
        key = type(self), self.model_dump_json()
        if key in _TRIED:
            return self
        splits: tuple[Split, ...] = ("train", "dev", "test")
        for split in splits if self.held_out or self.disjoint else splits[:1]:
            trial = _Tally()
            found = self._draw(TRIAL, stream(0, "trial"), split, trial)
            if not trial.usable:
                raise ValueError(f"none of {TRIAL} drawn documents can be used: {self._reason(trial, split)}")
            if not len(found):
                raise ValueError(f"the grammar has too few documents: none is left for {split} with disjoint = True")
        _TRIED.add(key)
        return self

    @cached_property
    def rules(self) -> Grammar:
        """The grammar."""
        return self.grammar if isinstance(self.grammar, Grammar) else drawn_grammar(self.grammar)

    @property
    def _relation_tokens(self) -> tuple[str, ...]:
        # The three published relations always have a token, used or not, so that vocabularies agree with the paper's.
        return PUBLISHED_RELATIONS + tuple(r for r in self.relations if r not in PUBLISHED_RELATIONS)

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.rules.num_terminals + len(self._relation_tokens)

    @property
    def max_length(self) -> int:
        return min(self.max_symbols, self.rules.longest) + self._around

    @property
    def _around(self) -> int:
        """Tokens of a document that are not its string."""
        return 5 + (len(self.relations) > 1)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("key", "value", "query")

    def symbol_class(self, slot: str, symbols: Symbols) -> tuple[int, int]:
        return FIRST_SYMBOL, self.rules.num_terminals

    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        tally, rng = _Tally(), split_generator(rng, split)

        def draw(size: int) -> tuple[Batch, int]:
            before = tally.usable
            return self._draw(size, rng, split, tally), tally.usable - before

        return collect(n, draw, CHUNK, lambda: self._reason(tally, split))

    def _draw(self, n: int, rng: torch.Generator, split: Split, tally: "_Tally") -> Batch:
        """The documents among n drawn ones that can be used and belong to the split."""

        def uniform(size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
            return torch.rand(size, generator=rng, dtype=torch.float64).numpy()

        forest = derive(self.rules.tables, n, self.max_symbols, uniform, left_headed=self.rules.head == "left")
        documents = forest.documents
        relation, choice = self._choose(forest, documents, split, uniform)
        short, long = forest.sizes < SHORTEST, forest.cut | (forest.sizes > self.max_symbols)
        usable = choice.possible & ~short & ~long
        tally.add(n, short, long, usable)
        wanted = usable
        if self.disjoint and not (self.held_out and split == "test"):  # held-out pairs are in no other split anyway
            hashes = token_hashes(np.arange(len(documents)) - forest.starts[documents], forest.symbols)
            asked = np.stack([relation, forest.symbols[choice.query], forest.symbols[choice.answer]])
            whole = np.add.reduceat(hashes, forest.starts) + token_hashes(
                np.array([[2**20], [2**20 + 1], [2**20 + 2]]), asked
            ).sum(0)
            wanted = usable & in_split(whole, split)
        return self._batch(forest, documents, wanted, relation, choice)

    def _choose(self, forest: Forest, documents: Ints, split: Split, uniform: Uniform) -> tuple[Ints, Choice]:
        """The relation asked in each document (an index into `relations`) and the pair."""
        n = len(forest.sizes)
        last = rightmost_occurrences(forest, documents, self.rules.num_terminals)
        choices = []
        for relation in self.relations:
            query, answer = self._eligible(forest, last, relation)
            if self.held_out:
                held = held_out_pairs(forest.symbols[query], forest.symbols[answer], self.held_out, self.split_seed)
                query, answer = query[held == (split == "test")], answer[held == (split == "test")]
            choices.append(choose_pairs(documents, n, query, answer, uniform))
        if len(choices) == 1:
            return np.zeros(n, dtype=np.int64), choices[0]
        # The k-th of the relations that are possible, k uniform.
        possible = np.stack([choice.possible for choice in choices])
        nth = (uniform(n) * possible.sum(0)).astype(np.int64) + 1
        drawn = (possible.cumsum(0) == nth).argmax(0)
        return drawn, Choice(
            np.logical_or.reduce(possible, axis=0),
            np.stack([choice.query for choice in choices])[drawn, np.arange(n)],
            np.stack([choice.answer for choice in choices])[drawn, np.arange(n)],
        )

    def _eligible(self, forest: Forest, last: Bools, relation: str) -> tuple[Ints, Ints]:
        """What can be asked and its answers, `last` being who is the rightmost of his kind."""
        answer = related(forest, relation, left_headed=self.rules.head == "left")
        eligible = last & (answer >= 0)
        if relation == "sibling":
            eligible &= last[answer]
        query = np.flatnonzero(eligible)
        return query, answer[query]

    @property
    def counterfactuals(self) -> tuple[str, ...]:
        return ("query",)  # other changes would have to be derived by the grammar again

    def alter(self, kind: str, batch: Batch, rng: torch.Generator) -> Change:
        """Asks another symbol of the string, with another answer, for the same relation."""
        n, sizes = len(batch), batch.labels["length"].numpy()
        starts, documents = np.cumsum(sizes) - sizes, np.repeat(np.arange(n), sizes)
        column = np.arange(len(documents)) - starts[documents] + 1
        parents = batch.labels["parents"].long().numpy()[documents, column]
        parents = np.where(parents >= 0, parents - 1 + starts[documents], -1)
        symbols = batch.tokens.numpy()[documents, column] - FIRST_SYMBOL
        forest = Forest(symbols, parents, starts, sizes, np.zeros(n, dtype=np.bool_))
        last = rightmost_occurrences(forest, documents, self.rules.num_terminals)
        at, answers = batch.answers()
        query_at = batch.role("query")[:, None]
        asked = batch.tokens.gather(1, query_at)[:, 0].numpy() - FIRST_SYMBOL
        answered = answers.numpy() - FIRST_SYMBOL
        parts = []
        for index, relation in enumerate(self.relations):
            query, answer = self._eligible(forest, last, relation)
            of = documents[query]
            may = (batch.labels["relation"].numpy()[of] == index) & (symbols[answer] != answered[of])
            if self.held_out:
                held = held_out_pairs(symbols[query], symbols[answer], self.held_out, self.split_seed)
                may &= held == held_out_pairs(asked, answered, self.held_out, self.split_seed)[of]
            parts.append((query[may], answer[may]))
        query, answer = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(query)
        uniform = torch.rand(n, generator=rng, dtype=torch.float64).numpy()
        choice = choose_pairs(documents, n, query[order], answer[order], lambda _: uniform)
        new = torch.from_numpy(FIRST_SYMBOL + symbols[choice.answer])
        tokens = batch.tokens.scatter(1, query_at, torch.from_numpy(FIRST_SYMBOL + symbols[choice.query])[:, None])
        return Change(tokens.scatter(1, at[:, None] + 1, new[:, None]), new, torch.from_numpy(choice.possible))

    def _batch(self, forest: Forest, documents: Ints, wanted: Bools, relation: Ints, choice: Choice) -> Batch:
        sizes, starts = forest.sizes[wanted], forest.starts[wanted]
        n, width = len(sizes), int(sizes.max(initial=0)) + self._around
        tokens = np.zeros((n, width), dtype=np.int64)
        parents = np.full((n, width), -1, dtype=np.int16)  # a large sample is mostly padding; keep it small
        flat = np.flatnonzero(wanted[documents])
        row = np.repeat(np.arange(n), sizes)
        shift = 1 - starts[row]  # BOS stands in front
        column = flat + shift
        tokens[row, column] = FIRST_SYMBOL + forest.symbols[flat]
        parents[row, column] = np.where(forest.parents[flat] >= 0, forest.parents[flat] + shift, -1)
        tokens[:, 0] = BOS

        rows, divider = np.arange(n), 1 + sizes
        query, answer, relation = choice.query[wanted], choice.answer[wanted], relation[wanted]
        key, value = query - starts + 1, answer - starts + 1
        tokens[rows, divider] = EOS
        tokens[rows, divider + 1] = FIRST_SYMBOL + forest.symbols[query]
        scored = divider + 1
        roles = {"key": key, "value": value, "divider": divider, "query": divider + 1}
        if len(self.relations) > 1:
            scored = divider + 2
            roles["relation"] = scored
            token_of = [self._relation_tokens.index(name) for name in self.relations]
            tokens[rows, scored] = FIRST_SYMBOL + self.rules.num_terminals + np.array(token_of)[relation]
        target = FIRST_SYMBOL + forest.symbols[answer]
        tokens[rows, scored + 1] = target
        tokens[rows, scored + 2] = EOS
        targets = np.full((n, width), UNSCORED, dtype=np.int64)
        targets[rows, scored] = target
        labels = {"distance": np.abs(value - key), "length": sizes, "relation": relation, "parents": parents}
        return Batch(
            torch.from_numpy(tokens),
            torch.from_numpy(targets),
            {name: torch.from_numpy(at) for name, at in roles.items()},
            {name: torch.from_numpy(label) for name, label in labels.items()},
        )

    def _reason(self, tally: "_Tally", split: Split) -> str:
        side = f" in the {split} split (held_out = {self.held_out})" if self.held_out else ""
        return (
            f"{tally.short / tally.drawn:.0%} have fewer than {SHORTEST} symbols, {tally.long / tally.drawn:.0%} more"
            f" than max_symbols = {self.max_symbols}, the others no {' or '.join(self.relations)} query{side}"
        )

    def solve(self, batch: Batch) -> Tensor:
        """[n, 1] answers, read from the tokens and the recorded trees once these are known to derive the strings."""
        check_trees(self.rules, batch.tokens.numpy(), batch.labels["parents"].long().numpy())
        return self.read_answers(batch)

    def read_answers(self, batch: Batch) -> Tensor:
        tokens, parents = batch.tokens, batch.labels["parents"].long()
        divider = (tokens == EOS).int().argmax(1, keepdim=True)
        query = tokens.gather(1, divider + 1)
        named = tokens.gather(1, divider + 2) - FIRST_SYMBOL - self.rules.num_terminals
        answers = torch.full_like(query, -1)
        for relation in self.relations:
            found = find_relative(tokens, parents, divider, query, relation, head=self.rules.head)
            is_asked = torch.full_like(named, len(self.relations) == 1, dtype=torch.bool)
            is_asked |= named == self._relation_tokens.index(relation)
            answers = torch.where(is_asked, found, answers)
        return torch.where(answers >= 0, tokens.gather(1, answers.clamp(min=0)), UNSCORED)

    def ambiguous(self, batch: Batch) -> Tensor:
        """[n] whether the string has a second derivation with another answer; no model can know which was meant."""
        parser = Parser(self.rules)
        found = []
        for tokens, key, size, value, relation in zip(
            batch.tokens.tolist(),
            batch.roles["key"].tolist(),
            batch.labels["length"].tolist(),
            batch.roles["value"].tolist(),
            batch.labels["relation"].tolist(),
            strict=True,
        ):
            string = [token - FIRST_SYMBOL for token in tokens[1 : size + 1]]
            answers = parser.answers(string, key - 1, self.relations[relation])
            found.append({string[at] for at in answers} != {string[value - 1]})
        return torch.tensor(found)

    def symbol(self, token: int) -> str:
        if token < FIRST_SYMBOL:
            return SPECIAL_NAMES[token]
        index = token - FIRST_SYMBOL
        if index < self.rules.num_terminals:
            return f"t{index}"
        return f"{self._relation_tokens[index - self.rules.num_terminals]}?"


class _Tally:
    """Why drawn documents could not be used."""

    def __init__(self) -> None:
        self.drawn = self.short = self.long = self.usable = 0

    def add(self, drawn: int, short: Bools, long: Bools, usable: Bools) -> None:
        self.drawn += drawn
        self.short += int(short.sum())
        self.long += int(long.sum())
        self.usable += int(usable.sum())

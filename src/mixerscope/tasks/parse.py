"""Parsing against a grammar: does a recorded tree derive its string, and what could other derivations answer?"""

from collections import defaultdict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixerscope.tasks.base import EOS, FIRST_SYMBOL
from mixerscope.tasks.derivation import Bools, Ints, ancestor_steps, outer_children
from mixerscope.tasks.grammar import Grammar, Head

Fact = tuple[str, int] | None
"""What a stretch of the string knows of the query: ("up", levels still to climb), ("at", answer), None if not in it."""


def check_trees(grammar: Grammar, tokens: Ints, parents: Ints) -> None:
    """Raises unless each tree, given as parent positions, is that of a derivation of its document's string.

    Bottom-up over all documents at once: which nonterminals can each symbol be the head of, given its children?
    """
    n = len(tokens)
    if n == 0:
        return
    sizes = (tokens == EOS).argmax(1) - 1
    starts = np.cumsum(sizes) - sizes
    document = np.repeat(np.arange(n), sizes)
    column = np.arange(len(document)) - starts[document] + 1
    if grammar.head == "left":  # turned round, it is a right-headed grammar with its bodies turned round
        column = sizes[document] + 1 - column
    symbol, parent = tokens[document, column] - FIRST_SYMBOL, parents[document, column]
    if grammar.head == "left":
        parent = np.where(parent >= 0, sizes[document] + 1 - parent, -1)
    flat = np.arange(len(document))
    parent = np.where(parent >= 0, parent - 1 + starts[document], -1)
    is_last = flat == (starts + sizes - 1)[document]
    well_formed = np.where(is_last, parent == -1, (parent > flat) & (parent < (starts + sizes)[document]))
    well_formed &= (symbol >= 0) & (symbol < grammar.num_terminals)
    _refuse(document, well_formed)

    child = np.flatnonzero(parent >= 0)
    child = child[np.argsort(parent[child], kind="stable")]  # grouped by parent, in order within
    count = np.bincount(parent[child], minlength=len(flat))
    first_child = np.cumsum(count) - count
    # The phrases of the children follow each other without a gap and end in front of the head.
    begin, first = flat.copy(), outer_children(parent, last=False)
    while (deeper := first[begin] >= 0).any():
        begin = np.where(deeper, first[begin], begin)
    same_parent = np.append(parent[child][1:] == parent[child][:-1], False)
    follower = np.where(same_parent, begin[np.append(child[1:], 0)], parent[child])
    contiguous = np.ones(len(flat), dtype=np.bool_)
    contiguous[child] = follower == child + 1
    _refuse(document, contiguous)

    can_head = _categories(grammar, symbol, count, first_child, child)
    _refuse(document, can_head[flat].any(1) | ~is_last)


def _refuse(document: Ints, good: Bools) -> None:
    if not good.all():
        raise ValueError(f"document {document[~good][0]}: the recorded tree does not derive the string")


def _categories(grammar: Grammar, symbol: Ints, count: Ints, first_child: Ints, child: Ints) -> Bools:
    """[f, nonterminals] which phrases each symbol with its children can be."""
    bodies = [
        (x, body[::-1] if grammar.head == "left" else body) for x, rules in enumerate(grammar.bodies) for body in rules
    ]
    head_possible = np.array(grammar.head_weights).T > 0
    can_head = np.zeros((len(symbol), len(grammar.bodies)), dtype=np.bool_)
    done = count == 0
    while not done.all():
        # Ready: not done, all children done.
        waiting = np.bincount(np.repeat(np.arange(len(count)), count), ~done[child], minlength=len(count))
        ready = ~done & (waiting == 0)
        for length in np.unique(count[ready]):
            node = np.flatnonzero(ready & (count == length))
            children = child[first_child[node][:, None] + np.arange(length)]
            leaf, symbols = count[children] == 0, symbol[children]
            for x, body in bodies:
                if len(body) != length:
                    continue
                fits = head_possible[symbol[node], x]
                for j, s in enumerate(body):
                    fits = fits & (leaf[:, j] & (symbols[:, j] == s) if s >= 0 else can_head[children[:, j], -1 - s])
                can_head[node, x] |= fits
        done |= ready
    return can_head


def find_relative(
    tokens: Tensor, parents: Tensor, divider: Tensor, query: Tensor, relation: str, *, head: Head
) -> Tensor:
    """[n, 1] where the relative of the query symbol stands, its rightmost occurrence being meant; -1 where nowhere."""
    where = torch.arange(tokens.shape[1]).expand_as(tokens)
    inside = (where > 0) & (where < divider)
    key = _edge(inside & (tokens == query), last=True)
    parent = _climb(parents, key)
    if relation == "child":
        found = _edge(inside & (parents == key), last=head == "left")
    elif relation == "sibling":
        found = torch.where(parent >= 0, _edge(inside & (parents == parent), last=True), -1)
    else:
        found = key
        for _ in range(ancestor_steps(relation)):
            found = _climb(parents, found)
    return torch.where(key >= 0, found, -1)


def _climb(parents: Tensor, at: Tensor) -> Tensor:
    return torch.where(at >= 0, parents.gather(1, at.clamp(min=0)), -1)


def _edge(mask: Tensor, *, last: bool) -> Tensor:
    """[n, 1] the first or last column where the mask holds, -1 where it never does."""
    where = torch.arange(mask.shape[1]).expand_as(mask)
    if last:
        return torch.where(mask, where, -1).amax(1, True)
    first = torch.where(mask, where, mask.shape[1]).amin(1, True)
    return torch.where(first < mask.shape[1], first, -1)


class Parser:
    """A chart parser that keeps, for every phrase a stretch of the string can be, what it says about one query."""

    def __init__(self, grammar: Grammar) -> None:
        self.mirror = grammar.head == "left"
        self.head_possible: NDArray[np.bool_] = np.array(grammar.head_weights) > 0
        # All bodies in one prefix tree; node 0 is the empty prefix.
        self.by_terminal: list[dict[int, int]] = [{}]
        self.by_phrase: list[dict[int, int]] = [{}]
        self.ends: list[list[int]] = [[]]
        for x, rules in enumerate(grammar.bodies):
            for body in rules:
                node = 0
                for s in reversed(body) if self.mirror else body:
                    edges, label = (self.by_terminal, s) if s >= 0 else (self.by_phrase, -1 - s)
                    if label not in edges[node]:
                        edges[node][label] = len(self.ends)
                        self.by_terminal.append({})
                        self.by_phrase.append({})
                        self.ends.append([])
                    node = edges[node][label]
                if x not in self.ends[node]:
                    self.ends[node].append(x)

    def answers(self, string: list[int], query: int, relation: str) -> set[int]:
        """Positions that are the answer to the query in some derivation of the string."""
        n = len(string)
        if self.mirror:
            string, query = string[::-1], n - 1 - query
        phrases = self._chart(string, query, relation)
        found = {fact[1] for facts in phrases[0][n - 1].values() for fact in facts if fact and fact[0] == "at"}
        return {n - 1 - at for at in found} if self.mirror else found

    def _chart(self, string: list[int], query: int, relation: str) -> list[dict[int, dict[int, set[Fact]]]]:
        n = len(string)
        # phrases[i][h][x]: facts of the derivations of string[i..h] from x, the head being at h
        phrases: list[dict[int, dict[int, set[Fact]]]] = [defaultdict(lambda: defaultdict(set)) for _ in range(n)]
        leaf = _fact_of_leaf(relation)
        for i in reversed(range(n)):
            # A state is a prefix of a body that covers string[i..m), where the head of its first child is, and a fact.
            agenda: list[set[tuple[int, int, Fact]]] = [set() for _ in range(n + 1)]
            agenda[i].add((0, -1, None))
            for m in range(i, n):
                for node, first, fact in agenda[m]:
                    for x in self.ends[node]:
                        if self.head_possible[x, string[m]]:
                            phrases[i][m][x].add(self._with_head(relation, fact, m, first, m == query))
                    after = self.by_terminal[node].get(string[m])
                    if after is not None:
                        agenda[m + 1].add((after, m if node == 0 else first, leaf if m == query else fact))
                    if node == 0:
                        continue  # a phrase that begins here too is taken up when it is complete
                    for x, after in self.by_phrase[node].items():
                        for head, of in phrases[m].items():
                            for inner in of.get(x, ()):
                                agenda[head + 1].add((after, first, fact or inner))
                for x, facts in phrases[i][m].items() if m in phrases[i] else ():
                    after = self.by_phrase[0].get(x)
                    if after is not None:
                        agenda[m + 1].update((after, m, fact) for fact in facts)
        return phrases

    def _with_head(self, relation: str, fact: Fact, head: int, first: int, is_query: bool) -> Fact:
        if is_query:
            return ("at", first) if relation == "child" else _fact_of_leaf(relation)
        if fact is None or fact[0] == "at":
            return fact
        if fact[1] > 1:
            return ("up", fact[1] - 1)
        if relation == "sibling":  # the rightmost child: in the mirror it is the first
            return ("at", first if self.mirror else head - 1)
        return ("at", head) if fact[1] == 1 else fact


def _fact_of_leaf(relation: str) -> Fact:
    if relation == "child":
        return ("up", 0)  # never answered: a leaf has no child
    return ("up", 1 if relation == "sibling" else ancestor_steps(relation))

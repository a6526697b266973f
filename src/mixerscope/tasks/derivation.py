"""Derivations of many documents at once, and the queries that can be asked about them.

Documents lie one behind the other in flat arrays, so that short and long ones cost what they are long. A batch is
expanded level by level: all phrases of one depth of all documents in one go.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixerscope.tasks.grammar import Tables

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Uniform = Callable[[int], NDArray[np.float64]]
"""Draws that many uniform numbers."""


@dataclass(frozen=True)
class Forest:
    """Strings and their trees."""

    symbols: Ints
    """[f] terminals, document after document."""
    parents: Ints
    """[f] index into the flat arrays, -1 for the root of each document."""
    starts: Ints
    """[n] where each document begins."""
    sizes: Ints
    """[n] symbols of each document."""
    cut: Bools
    """[n] whether the expansion was given up because the document would exceed the limit; it is then incomplete."""

    @property
    def documents(self) -> Ints:
        """[f] the document of each symbol."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


@dataclass(frozen=True)
class _Level:
    """All phrases of one depth, and the symbols of their bodies."""

    heads: Ints
    """[m] terminals drawn as heads."""
    first: Ints
    """[m] index of the first body symbol."""
    owner: Ints
    """[c] the phrase of each body symbol."""
    symbols: Ints
    """[c] body symbols."""
    expanded: Ints
    """Indices of the body symbols that are the phrases of the next level."""


def derive(tables: Tables, n: int, limit: int, uniform: Uniform, *, left_headed: bool) -> Forest:
    """n strings of the grammar with their trees. One that would exceed the limit is cut."""
    levels, cut = _expand(tables, n, limit, uniform)

    sizes: list[Ints] = []
    below = np.empty(0, dtype=np.int64)
    child_sizes: list[Ints] = []
    for level in reversed(levels):
        of_child = np.ones(len(level.symbols), dtype=np.int64)
        of_child[level.expanded] = below
        below = 1 + np.add.reduceat(of_child, level.first)
        child_sizes.append(of_child)
        sizes.append(below)
    sizes.reverse()
    child_sizes.reverse()

    starts = np.cumsum(sizes[0]) - sizes[0]
    total = int(sizes[0].sum())
    symbols, parents = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    begin, above = starts, np.full(n, -1, dtype=np.int64)
    for level, size, of_child in zip(levels, sizes, child_sizes, strict=True):
        head_at = begin + size - 1
        symbols[head_at] = level.heads
        parents[head_at] = above
        before = np.cumsum(of_child) - of_child
        child_at = before + (begin - before[level.first])[level.owner]
        child_head = head_at[level.owner]
        # Phrases among the children are overwritten below by what stands at their first position and at their head.
        symbols[child_at] = level.symbols
        parents[child_at] = child_head
        begin, above = child_at[level.expanded], child_head[level.expanded]
    np.maximum(symbols, 0, out=symbols)  # phrases that were cut are left as negative numbers
    if left_headed:
        flip = np.repeat(2 * starts + sizes[0] - 1, sizes[0]) - np.arange(total)
        symbols, parents = symbols[flip], parents[flip]
        has_parent = parents >= 0
        parents[has_parent] = flip[parents[has_parent]]
    return Forest(symbols, parents, starts, sizes[0], cut)


def _expand(tables: Tables, n: int, limit: int, uniform: Uniform) -> tuple[list[_Level], Bools]:
    phrases = np.minimum((uniform(n) * tables.nonterminals).astype(np.int64), tables.nonterminals - 1)
    documents = np.arange(n)
    least, cut = np.zeros(n), np.zeros(n, dtype=np.bool_)
    levels: list[_Level] = []
    while len(phrases):
        rules = tables.draw_rules(phrases, uniform(len(phrases)))
        heads = tables.draw_heads(phrases, uniform(len(phrases)))
        lengths = tables.body_length[rules]
        first = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(phrases)), lengths)
        symbols = tables.symbols[np.arange(len(owner)) + (tables.body_start[rules] - first)[owner]]
        # A phrase was counted as two symbols when its parent was expanded; now it is known better.
        gain = tables.least[rules] - (2 if levels else 0)
        least += np.bincount(documents, gain, minlength=n)
        cut |= least > limit
        expanded = np.flatnonzero((symbols < 0) & ~cut[documents][owner])
        levels.append(_Level(heads, first, owner, symbols, expanded))
        phrases, documents = -1 - symbols[expanded], documents[owner[expanded]]
    return levels, cut


def rightmost_occurrences(forest: Forest, documents: Ints, num_terminals: int) -> Bools:
    """[f] whether no later symbol of the same document is the same."""
    order = np.argsort(documents * num_terminals + forest.symbols, kind="stable")
    sorted_key = (documents * num_terminals + forest.symbols)[order]
    last = np.empty(len(order), dtype=np.bool_)
    last[order] = np.append(sorted_key[1:] != sorted_key[:-1], True) if len(order) else True
    return last


def outer_children(parents: Ints, *, last: bool) -> Ints:
    """[f] the first (or last) child of each symbol, -1 for leaves."""
    found = np.full(len(parents), -1, dtype=np.int64)
    child = np.flatnonzero(parents >= 0)
    child = child if last else child[::-1]
    found[parents[child]] = child  # of several children the one written last stays
    return found


def related(forest: Forest, relation: str, *, left_headed: bool) -> Ints:
    """[f] the answer to a query about each symbol, -1 where there is none."""
    parents = forest.parents
    if relation == "child":
        return outer_children(parents, last=left_headed)
    if relation == "sibling":
        return np.where(parents >= 0, outer_children(parents, last=True)[parents], -1)
    answer = np.arange(len(parents))
    for _ in range(ancestor_steps(relation)):
        answer = np.where(answer >= 0, parents[answer], -1)
    return answer


def ancestor_steps(relation: str) -> int:
    """How many times up a relation goes: parent 1, grandparent 2, ancestor-k k."""
    return {"parent": 1, "grandparent": 2}.get(relation) or int(relation.removeprefix("ancestor-"))


@dataclass(frozen=True)
class Choice:
    """One query for each document that has any."""

    possible: Bools
    """[n] whether the document has an eligible pair."""
    query: Ints
    answer: Ints
    """[n] flat indices, 0 where not possible."""


def choose_pairs(documents: Ints, n: int, query: Ints, answer: Ints, uniform: Uniform) -> Choice:
    """Draws one of the eligible (query, answer) pairs of each document: the answer first, uniformly, then its query.

    So a pair has the chance 1 / (answers of the document) / (eligible queries of that answer). `query` ascends.
    """
    of = documents[query]
    size = len(documents)
    queries_of_answer = np.bincount(answer, minlength=size)
    answers_of_document = np.bincount(documents[queries_of_answer > 0], minlength=n)
    weight = 1.0 / (queries_of_answer[answer] * answers_of_document[of])
    # The weights of each document sum to 1, so the k-th document with pairs covers [k, k + 1) of the running sum.
    pairs = np.bincount(of, minlength=n)
    possible = pairs > 0
    end = np.cumsum(pairs)
    rank = np.cumsum(possible) - 1
    drawn = np.searchsorted(np.cumsum(weight), rank + uniform(n), side="right")
    drawn = np.clip(drawn, end - pairs, end - 1)
    at_query, at_answer = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    at_query[possible], at_answer[possible] = query[drawn[possible]], answer[drawn[possible]]
    return Choice(possible, at_query, at_answer)

"""Associative treecall: derivations, queries, and the parser that measures its ceiling, each worked out another way."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from mixerscope.tasks import ATR, Grammar, GrammarRecipe
from mixerscope.tasks.derivation import derive
from mixerscope.tasks.parse import Parser, check_trees
from tests.tasks.every import generator

TINY = Grammar(
    num_terminals=3,
    bodies=(((0, -2), (-2, -3), (1,)), ((1, 2), (-3,)), ((0,), (2, 0))),
    weights=((0.5, 0.3, 0.2), (0.6, 0.4), (0.7, 0.3)),
    head_weights=((0.5, 0.5, 0.0), (0.2, 0.3, 0.5), (1.0, 0.0, 0.0)),
)
AMBIGUOUS = Grammar(
    num_terminals=2,
    bodies=(((-2, -3), (0, -2)), ((0,), (0, 0), (-3, 1)), ((0,), (0, 0), (1, 0, 0))),
    weights=((0.5, 0.5), (0.3, 0.3, 0.4), (0.3, 0.3, 0.4)),
    head_weights=((0.5, 0.5), (0.5, 0.5), (0.5, 0.5)),
)


def derivations(grammar, x):
    """Every derivation from a nonterminal: string, parents (positions in it), probability. The head comes last."""
    found = []
    for body, p in zip(grammar.bodies[x], grammar.weights[x], strict=True):
        body = body if grammar.head == "right" else body[::-1]
        parts = [[((s,), (-1,), 1.0)] if s >= 0 else derivations(grammar, -1 - s) for s in body]
        for children in itertools.product(*parts):
            for head, p_head in enumerate(grammar.head_weights[x]):
                if p_head == 0:
                    continue
                string, parents = (), ()
                size = sum(len(child[0]) for child in children)
                for symbols, inner, _ in children:
                    shift = len(string)
                    string += symbols
                    parents += tuple(size if at < 0 else at + shift for at in inner)
                chance = p * p_head * np.prod([child[2] for child in children])
                found.append(((*string, head), (*parents, -1), chance))
    return found


def all_documents(grammar):
    """Probability of every (string, parents)."""
    chances = Counter()
    for x in range(len(grammar.bodies)):
        for string, parents, chance in derivations(grammar, x):
            if grammar.head == "left":
                n = len(string)
                string = string[::-1]
                parents = tuple(-1 if at < 0 else n - 1 - at for at in parents[::-1])
            chances[string, parents] += chance / len(grammar.bodies)
    return chances


def relative(string, parents, query, relation, head):
    """The answer position, read literally; None where there is none."""
    if relation == "child":
        children = [i for i, parent in enumerate(parents) if parent == query]
        return None if not children else children[0 if head == "right" else -1]
    if relation == "sibling":
        same = [i for i, parent in enumerate(parents) if parent == parents[query]]
        return None if parents[query] < 0 else same[-1]
    for _ in range({"parent": 1, "grandparent": 2, "ancestor-3": 3}[relation]):
        if query < 0:
            return None
        query = parents[query]
    return None if query < 0 else query


def eligible(string, parents, relation, head):
    def is_last(i):
        return string[i] not in string[i + 1 :]

    for query in range(len(string)):
        answer = relative(string, parents, query, relation, head)
        if answer is not None and is_last(query) and (relation != "sibling" or is_last(answer)):
            yield query, answer


RELATIONS = ("parent", "child", "sibling", "grandparent", "ancestor-3")
both_heads = pytest.mark.parametrize("head", ["right", "left"])


@both_heads
def test_derivations_have_the_chances_the_grammar_gives_them(head):
    grammar = TINY.changed(head=head)
    expected = all_documents(grammar)
    assert sum(expected.values()) == pytest.approx(1)
    rng = generator(0)
    forest = derive(
        grammar.tables,
        200_000,
        100,
        lambda size: torch.rand(size, generator=rng, dtype=torch.float64).numpy(),
        left_headed=head == "left",
    )
    seen = Counter()
    for start, size in zip(forest.starts.tolist(), forest.sizes.tolist(), strict=True):
        symbols = tuple(forest.symbols[start : start + size].tolist())
        parents = tuple(-1 if at < 0 else at - start for at in forest.parents[start : start + size].tolist())
        seen[symbols, parents] += 1
    assert set(seen) <= set(expected)
    for document, chance in expected.items():
        assert abs(seen[document] - 200_000 * chance) < 5 * (200_000 * chance) ** 0.5 + 5


@both_heads
@pytest.mark.parametrize("relation", RELATIONS)
def test_queries_have_the_chances_of_answer_first_sampling(head, relation):
    grammar = TINY.changed(head=head)
    expected = Counter()
    for (string, parents), chance in all_documents(grammar).items():
        pairs = list(eligible(string, parents, relation, head))
        if len(string) < 3 or not pairs:
            continue
        answers = {answer for _, answer in pairs}
        for query, answer in pairs:
            share = sum(a == answer for _, a in pairs) * len(answers)
            expected[string, parents, query + 1, answer + 1] += chance / share
    total = sum(expected.values())
    task = ATR(grammar=grammar, relations=(relation,), disjoint=False)
    n = 40_000
    batch = task.sample(n, generator(1))
    seen = Counter()
    columns = (batch.tokens, batch.labels["parents"], batch.labels["length"], batch.role("key"), batch.role("value"))
    for tokens, parents, size, key, value in zip(*(column.tolist() for column in columns), strict=True):
        string = tuple(token - 3 for token in tokens[1 : size + 1])
        seen[string, tuple(-1 if at < 0 else at - 1 for at in parents[1 : size + 1]), key, value] += 1
    assert set(seen) <= set(expected)
    for what, chance in expected.items():
        assert abs(seen[what] - n * chance / total) < 5 * (n * chance / total) ** 0.5 + 5


@both_heads
def test_parser_finds_the_answers_of_all_derivations_and_no_other(head):
    grammar = AMBIGUOUS.changed(head=head)
    trees = {}
    for string, parents in all_documents(grammar):
        trees.setdefault(string, set()).add(parents)
    assert any(len(of) > 1 for of in trees.values())  # some strings are ambiguous
    parser = Parser(grammar)
    disagreements = 0
    for string, of in trees.items():
        for query in range(len(string)):
            for relation in RELATIONS:
                expected = {relative(string, parents, query, relation, head) for parents in of} - {None}
                assert parser.answers(list(string), query, relation) == expected, (string, query, relation)
                disagreements += len(expected) > 1
    assert disagreements > 0


@both_heads
def test_trees_that_do_not_derive_their_string_are_found(head):
    task = ATR(grammar=GrammarRecipe(head=head, seed=3))
    batch = task.sample(300, generator(0))
    tokens, parents = batch.tokens.numpy(), batch.labels["parents"].numpy()
    check_trees(task.rules, tokens, parents)
    caught = 0
    rng = np.random.default_rng(0)
    for i in range(300):
        size = int(batch.labels["length"][i])
        broken = parents[i : i + 1].copy()
        at = rng.integers(1, size + 1)
        broken[0, at] = rng.integers(1, size + 1)
        if broken[0, at] == parents[i, at]:
            continue
        try:
            check_trees(task.rules, tokens[i : i + 1], broken)
        except ValueError:
            caught += 1
            continue
        # What passes must be a real derivation: the parser then knows this parent too.
        string = (tokens[i, 1 : size + 1] - 3).tolist()
        assert broken[0, at] - 1 in Parser(task.rules).answers(string, at - 1, "parent")
    assert caught > 200
    other = tokens.copy()
    leaf = next(at for at in range(1, 300) if at not in parents[0])
    other[0, leaf] = 3 + (other[0, leaf] - 3 + 1) % 20
    with pytest.raises(ValueError, match="document 0"):
        check_trees(task.rules, other[:1], parents[:1])


def test_a_tree_whose_phrases_cross_is_no_derivation():
    grammar = Grammar(
        num_terminals=2,
        bodies=(((-2, -2),), ((0,),)),
        weights=((1.0,), (1.0,)),
        head_weights=((0.0, 1.0), (1.0, 0.0)),
    )
    tokens = np.array([[1, 3, 3, 3, 3, 4, 2]])
    check_trees(grammar, tokens, np.array([[-1, 2, 5, 4, 5, -1, -1]]))
    # Every symbol still has the children of some rule, but the phrase that ends at 4 encloses another one's symbols.
    with pytest.raises(ValueError, match="does not derive"):
        check_trees(grammar, tokens, np.array([[-1, 4, 3, 5, 5, -1, -1]]))


def test_solve_refuses_a_tree_that_does_not_fit():
    task = ATR()
    batch = task.sample(50, generator(0))
    batch.labels["parents"][7, 1] = 1
    with pytest.raises(ValueError, match="document 7: the recorded tree does not derive the string"):
        task.solve(batch)


def test_ambiguous_share_is_small_and_not_zero():
    task = ATR()
    share = task.ambiguous(task.sample(1500, generator(0))).double().mean()
    assert 0 < share < 0.05


def test_split_holds_query_answer_types_out():
    task = ATR.preset("paper-split")
    pairs = {}
    for split in ("train", "dev", "test"):
        batch = task.sample(20_000, generator(0), split)
        at, answer = batch.answers()
        query = batch.tokens.gather(1, at[:, None])[:, 0]
        pairs[split] = set(zip(query.tolist(), answer.tolist(), strict=True))
    assert not pairs["train"] & pairs["test"]
    assert not pairs["dev"] & pairs["test"]
    assert pairs["dev"] <= pairs["train"]
    share = len(pairs["test"]) / len(pairs["train"] | pairs["test"])
    assert 0.15 < share < 0.25


def test_the_same_grammar_serves_with_and_without_a_split():
    recipe = GrammarRecipe(seed=9)
    assert ATR(grammar=recipe).rules == ATR(grammar=recipe, held_out=0.2).rules


def test_longer_strings_than_allowed_are_drawn_again():
    free = ATR.preset("paper").sample(3000, generator(0))
    task = ATR.preset("paper").changed(max_symbols=20)
    limited = task.sample(3000, generator(0))
    assert free.labels["length"].max() > 20
    assert limited.labels["length"].max() <= 20
    # What fits is not touched by the limit: the distribution is the free one, cut.
    short = free.labels["length"][free.labels["length"] <= 20].double().mean().item()
    assert limited.labels["length"].double().mean().item() == pytest.approx(short, rel=0.05)
    assert torch.equal(task.solve(limited), limited.scored()[1])


def test_several_relations_name_the_one_asked_and_are_equally_likely_where_possible():
    task = ATR.preset("all-relations")
    batch = task.sample(4000, generator(0))
    named = batch.tokens.gather(1, batch.role("relation")[:, None])[:, 0]
    names = [task.relations[i] + "?" for i in batch.labels["relation"].tolist()]
    assert [task.symbol(token) for token in named.tolist()] == names
    counts = Counter(names)
    assert set(counts) == {"parent?", "child?", "sibling?", "grandparent?"}
    assert min(counts.values()) > 500


@pytest.mark.parametrize(("preset", "length"), [("paper", 15.0), ("paper-l10", 39.0), ("paper-split", 8.3)])
def test_presets_have_the_published_mean_length(preset, length):
    task = ATR.preset(preset)
    assert task.rules.mean_length == pytest.approx(length, abs=0.1)
    batch = task.changed(held_out=0.0).sample(10_000, generator(0))
    # Documents without an eligible query are missing from the sample, so it is a little longer than the strings.
    assert batch.labels["length"].double().mean().item() == pytest.approx(length, rel=0.06)


def test_vocabulary_and_layout_are_the_published_ones():
    task = ATR.preset("paper")
    assert task.vocab_size == 26
    assert ATR.preset("paper-8192").vocab_size == 8198
    assert ATR.preset("paper-8192").rules.bodies != task.rules.bodies  # other terminals in the same places
    shape = [[[s < 0 and s for s in body] for body in rules] for rules in task.rules.bodies]
    assert shape == [[[s < 0 and s for s in body] for body in rules] for rules in ATR.preset("paper-8192").rules.bodies]
    assert ATR(max_symbols=1019, grammar=GrammarRecipe(max_rule_length=10, seed=7)).max_length <= 1024


def test_search_finds_a_grammar_of_the_wished_mean_length_or_says_what_there_is():
    recipe = GrammarRecipe().with_mean_length(12.0, tolerance=0.2)
    assert recipe.grammar().mean_length == pytest.approx(12.0, abs=0.2)
    with pytest.raises(ValueError, match=r"none of 20 grammars has a mean length of 500 .* range from"):
        GrammarRecipe().with_mean_length(500, tries=20)


def test_a_grammar_prints_as_lines():
    lines = TINY.describe()
    assert lines[0].startswith("3 nonterminals, 3 terminals, 7 rules, right-headed")
    assert "    0.500  t0 N1 <head>" in lines
    assert "    0.500  <head> t0 N1" in TINY.changed(head="left").describe()

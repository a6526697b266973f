"""The pair of documents that a page shows is one that was measured."""

from dataclasses import replace

from mixerscope.artifacts import Provenance
from mixerscope.experiments.demo import demo_specs
from mixerscope.interventions import PairSettings, make_pairs
from mixerscope.report.data import gather
from mixerscope.report.example import Example, Token, _example
from mixerscope.results import load_run, load_runs

from .conftest import find_run, find_stage, rewrite
from .reading import page_of


def test_the_example_is_a_measured_pair(folder):
    root = folder("based")
    [group] = gather(load_runs(root))
    example = group.example
    assert example is not None
    [corrupted] = example.corrupted.values()
    assert sum(token.changed for token in corrupted) == 1
    assert [token.roles for token in corrupted if token.changed] == [("key",)]
    assert example.tokens[example.asked_at].roles == ("query",)
    assert example.tokens[example.asked_at + 1].text == example.answer
    effects = load_run(find_run(root, "based").path).effects
    before, after = (effects.likelihood(name) for name in ("original", "corrupted key"))
    [(label, found, changed)] = example.likelihoods
    one = before.tolist().index(found)
    assert (label, changed) == ("based", {"key": after[one].item()})
    assert (before - after)[one] >= 0.9 * (before - after).max()
    assert example.among == len(before)


def test_of_pairs_that_cost_nearly_as_much_one_is_shown_whose_roles_stand_apart():
    task = demo_specs()[0].task
    pairs = make_pairs(task, PairSettings(documents=64), 0)
    together = pairs.original.roles["next_key"] == pairs.original.roles["divider"]
    last, other, third = (int(together.nonzero()[0]), *(~together).nonzero()[:2, 0].tolist())

    def shown(costs):
        lost = [costs.get(i, 0.0) for i in range(64)]
        return _example(task, pairs, [("a", {"original": lost, "corrupted key": [0.0] * 64})]).likelihoods[0][1]

    assert shown({last: 1.0, other: 0.95, third: 0.92}) == 0.95
    assert shown({last: 1.0, other: 0.5}) == 1.0
    assert shown(dict.fromkeys(range(64), -1.0)) == -1.0


def test_of_a_long_document_what_has_a_role_is_shown_with_its_neighbours():
    def shown(length):
        tokens = tuple(Token(str(i), ("key",) if i == 20 else (), False) for i in range(length))
        return Example(tokens, {}, "", 38, [], 1).columns

    assert shown(28) == [*range(28)]
    assert shown(60) == [0, 1, None, 19, 20, 21, None, 37, 38, 39, None]
    assert shown(40) == [0, 1, None, 19, 20, 21, None, 37, 38, 39]


def test_no_example_is_shown_that_was_not_measured(folder):
    root = folder("based")
    patch = find_stage(find_run(root, "based"), "patch")
    rewrite(patch, replace(patch.read(Provenance), data_sha256="0" * 64))
    assert gather(load_runs(root))[0].example is None
    assert "One of the measured pairs" not in page_of(root).visible()

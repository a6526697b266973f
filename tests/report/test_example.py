"""The pair of documents that a page shows is one that was measured."""

from dataclasses import replace

from mixerscope.artifacts import Provenance
from mixerscope.report.data import gather
from mixerscope.report.example import Example, Token
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
    one = int((before - after).argmax())
    found = before[one].item(), after[one].item()
    assert example.among == len(before)
    assert example.likelihoods == [("based", found[0], {"key": found[1]})]


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

"""Claims: every one has a test, and what becomes of it depends on cells, seeds and models."""

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mixerscope.experiments.paper.claim_tests import NOT_LEARNED
from mixerscope.experiments.paper.claim_tests_more import TESTS
from mixerscope.experiments.paper.claims import Claim, Evidence, counted, judged, load_claims
from mixerscope.experiments.paper.evidence import Numbers, ahead_of, combined, difference
from mixerscope.experiments.paper.panels import ACCURACY
from mixerscope.experiments.paper.render import load_results
from mixerscope.experiments.paper.sweeps import figure_names

KEPT = Path(__file__).parents[2] / "reproduction"
CLAIM = Claim("x", "Something is large.", "4.2", "fig3")


def of(*cells: list[float]) -> dict[str, dict[int, float]]:
    return {f"cell {index}": dict(enumerate(values)) for index, values in enumerate(cells)}


def test_every_claim_has_a_test_and_a_figure_and_no_test_is_left_over():
    claims = load_claims()
    assert {claim.id for claim in claims} == set(TESTS)
    assert len(claims) == len(TESTS) >= 20
    assert {claim.figure for claim in claims} < set(figure_names())
    assert all(claim.sentence.endswith(".") and claim.section for claim in claims)
    sections = [claim.section for claim in claims]
    assert sections == sorted(sections), "in the order of the paper"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (of([1.0, 1.0, 1.0], [0.8, 0.9, 1.0]), "holds"),
        (of([1.0, 1.0, 0.1], [1.0, 1.0, 1.0]), "weaker than stated"),  # five of six models
        (of([1.0], [1.0], [0.0]), "weaker than stated"),
        (of([1.0], [0.0]), "does not hold"),
        (of([0.0, 0.0]), "does not hold"),
        (of([], []), "not tested"),
        (of([1.0], [], []), "not tested"),  # a third of what the sentence is about
        (of([1.0], []), "holds"),
    ],
)
def test_what_becomes_of_a_claim(cells, expected):
    assert judged(CLAIM, Evidence(cells, 0.5, "number")).outcome == expected


def test_it_is_said_where_cells_that_were_not_run_cannot_change_an_outcome():
    lost = judged(CLAIM, Evidence(of([1.0], [0.0], [0.0], []), 0.5, "number"))
    assert (lost.outcome, lost.effect[-16:]) == ("does not hold", "cannot change it")
    tied = judged(CLAIM, Evidence(of([1.0], [0.0], []), 0.5, "number"))
    assert (tied.outcome, tied.effect[-21:]) == ("does not hold", "cells, 1 not measured")
    most = judged(CLAIM, Evidence(of([1.0], [1.0], [0.0], []), 0.5, "number", of_cells=0.5))
    assert (most.outcome, most.effect[-16:]) == ("holds", "cannot change it")


def test_a_claim_about_little_is_held_to_it():
    evidence = Evidence(of([0.1, 0.2, 0.1]), 0.5, "number", below=True)
    found = judged(CLAIM, evidence)
    assert found.outcome == "holds"
    assert (found.seeds, found.models, found.passed) == (3, 3, 3)
    assert found.interval is not None
    assert found.interval[1] == 1.0
    assert found.interval[0] == pytest.approx(0.292, abs=0.001)  # Clopper and Pearson: 0.025 ** (1/3)
    assert judged(CLAIM, Evidence(of([0.1, 0.2, 0.1]), 0.5, "number")).outcome == "does not hold"


def test_a_sentence_about_most_cells_needs_most():
    cells = of([1.0], [1.0], [1.0], [0.0], [0.0])
    assert judged(CLAIM, Evidence(cells, 0.5, "number", of_cells=3 / 5)).outcome == "holds"
    assert judged(CLAIM, Evidence(cells, 0.5, "number", of_cells=4 / 5)).outcome == "weaker than stated"


def test_claims_are_counted_by_outcome_and_seeds():
    found = [judged(CLAIM, Evidence(cells, 0.5, "number")) for cells in (of([1.0, 1.0, 1.0]), of([1.0]), of([]))]
    assert counted(found) == {
        "holds": 2,
        "weaker than stated": 0,
        "does not hold": 0,
        "not tested": 1,
        "with three seeds": 1,
    }


def test_it_is_said_how_far_an_outcome_is_one_of_these_seeds():
    sure = judged(CLAIM, Evidence(of([1.0, 1.0, 1.0], [0.8, 0.9, 1.0]), 0.5, "number"))
    assert (sure.outcome, sure.again) == ("holds", 1.0)
    # Of three, two must pass: (1/3)^3 + 3 (1/3)^2 (2/3) that they do, where one of three does.
    toss = judged(CLAIM, Evidence(of([1.0, 0.4, 0.3]), 0.5, "number"))
    assert toss.outcome == "does not hold"
    assert toss.again == pytest.approx(20 / 27, abs=0.05)
    assert judged(CLAIM, Evidence(of([1.0], [1.0, 1.0]), 0.5, "number")).again is None, "one seed does not tell"
    assert judged(CLAIM, Evidence(of([1.0, 1.0], [], []), 0.5, "number")).again is None, "not tested"


def test_seeds_are_paired_where_they_are_of_one_model_and_nowhere_else():
    assert difference({0: 5.0, 1: 4.0}, {1: 1.0, 2: 9.0}) == {1: 3.0}
    assert ahead_of({0: 5.0, 7: 4.0}, {1: 1.0, 2: 2.0, 3: 9.0}, {0: 3.0}) == {0: 2.0, 7: 1.0}, "the best median"
    assert ahead_of({0: 5.0}, {1: 1.0}, {}) == {}, "one was not run"
    assert combined(lambda a: None if a > 1 else a, {0: 0.5, 1: 2.0}) == {0: 0.5}


@pytest.fixture(scope="module")
def numbers() -> Numbers:
    return Numbers(load_results(KEPT))


GUESSING = 100 / 16
"""Percent of answers that are right where one of the values is named at random."""


@pytest.mark.parametrize(
    ("id", "whole", "more_than"),
    [
        ("mamba-no-conv", "Mamba", NOT_LEARNED),
        ("mamba-conv-1", "Mamba", NOT_LEARNED),
        ("based-kernel-1", "Based", NOT_LEARNED),
        ("one-block-induction", "", NOT_LEARNED),
        ("hyena-at-query", "Hyena", GUESSING),
    ],
)
def test_a_claim_is_tested_where_it_could_be_wrong(id, whole, more_than, numbers):
    """Where the whole does not learn recall either, that a part of it does not says nothing; nor does a mechanism."""
    labels = [label.split(" d=") for label in TESTS[id](numbers).cells]
    learned = [numbers.at("fig3", ACCURACY, whole or row, int(width)) for row, width in labels]
    medians = [statistics.median(by_seed.values()) for by_seed in learned if by_seed]
    assert medians
    assert min(medians) > more_than


def made_up(numbers) -> Any:
    return SimpleNamespace(at=lambda figure, panel, row, width: dict(enumerate(numbers(panel, row, width))))


def test_of_two_that_solve_a_task_none_is_behind():
    for behind, expected in ((99.9, "does not hold"), (97.0, "holds")):
        found = made_up(lambda _, row, width, behind=behind: [99.99] * 5 if row == "Attention" else [behind] * 5)
        assert judged(CLAIM, TESTS["deltanet-behind"](found)).outcome == expected


@pytest.mark.parametrize(("row", "expected"), [("Mamba", "holds"), ("Hyena", "weaker than stated")])
def test_the_paper_excepts_one_width_of_mamba_from_what_three_blocks_learn(row, expected):
    found = made_up(lambda panel, name, width: [5.0 if (panel, name, width) == ("3 layers", row, 32) else 50.0] * 3)
    assert judged(CLAIM, TESTS["three-blocks"](found)).outcome == expected

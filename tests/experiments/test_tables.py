"""Ours beside published: the interval of five seeds, and what can be said of a published number."""

import statistics

import numpy as np
import pytest

from mixerscope.experiments.paper.data import published_documents
from mixerscope.experiments.paper.sweeps import Choice, load_figure, measured_documents
from mixerscope.experiments.paper.tables import Beside, beside, cells_of, counts, markdown, other_documents, prediction


def rows(values: list[float | None], panel: str = "Original", row: str = "Mamba", width: int = 64) -> list[dict]:
    return [
        {"panel": panel, "row": row, "width": width, "seed": seed, "value": value} for seed, value in enumerate(values)
    ]


def outcome(values: list[float | None], published: float | None) -> str:
    printed = {} if published is None else {("Original", "Mamba", 64): published}
    [cell] = beside(rows(values), printed)
    return cell.outcome


def test_the_interval_is_that_of_one_more_seed():
    values = [60.0, 62.0, 58.0, 61.0, 59.0]
    found = prediction(values)
    assert found is not None
    # Student's t with four degrees of freedom, 2.776, times s sqrt(1 + 1/5).
    half = 2.776 * statistics.stdev(values) * 1.2**0.5
    assert found == pytest.approx((60 - half, 60 + half), abs=0.01)


def test_four_seeds_have_no_interval_and_none_leaves_what_is_possible():
    assert prediction([1.0, 2.0, 3.0, 4.0]) is None
    assert prediction([0.0, 0.0, 0.0, 0.0, 30.0]) == pytest.approx((0.0, 46.8), abs=0.1)


def test_other_documents_take_a_number_as_far_as_the_interval_over_ours_says():
    five = [{**row, "low": row["value"] - 1.0, "high": row["value"] + 2.0} for row in rows([60.0] * 5)]
    assert other_documents(five, 1.0) == pytest.approx((2**0.5, 2 * 2**0.5)), "ours chanced to be some, theirs others"
    assert other_documents(five, 5.0) == pytest.approx((6**0.5, 2 * 6**0.5)), "theirs were a fifth as many"
    assert other_documents(rows([60.0] * 5), 1.0) == (0.0, 0.0), "nothing is known of documents"
    [alike] = beside(five, {("Original", "Mamba", 64): 58.7})
    assert (alike.interval, alike.outcome) == (pytest.approx((58.59, 62.83), abs=0.01), "inside")
    [few] = beside(five, {("Original", "Mamba", 64): 57.7}, times=5.0)
    assert few.outcome == "inside"
    assert measured_documents(Choice()) / published_documents(load_figure("fig5")) == 5
    assert measured_documents(Choice()) == published_documents(load_figure("fig3")) == 320


def test_the_interval_holds_a_run_on_documents_of_its_own_and_would_not_without_these():
    """Likelihoods of made-up models that differ by their seed, and of documents some of which are harder for all."""
    rng = np.random.default_rng(0)
    documents, held, held_by_seeds = 320, 0, 0
    rounds = 400
    for _ in range(rounds):
        base, spread = rng.uniform(2.0, 98.0), rng.uniform(0.0, 1.5)

        def measured(seeds: int, base: float = base, spread: float = spread) -> list[dict]:
            hard = rng.normal(0.0, 20.0, documents)
            told = [rng.normal(base, spread) + hard + rng.normal(0.0, 10.0, documents) for _ in range(seeds)]
            ends = [1.96 * one.std(ddof=1) / documents**0.5 for one in told]
            values = rows([float(one.mean()) for one in told])
            return [
                {**row, "low": row["value"] - end, "high": row["value"] + end}
                for row, end in zip(values, ends, strict=True)
            ]

        ours, [theirs] = measured(5), measured(1)
        values = [row["value"] for row in ours]
        for with_documents in (True, False):
            ends = other_documents(ours, 1.0) if with_documents else (0.0, 0.0)
            found = prediction(values, ends, within=(-100.0, 200.0))
            assert found is not None
            inside = found[0] <= theirs["value"] <= found[1]
            held += inside and with_documents
            held_by_seeds += inside and not with_documents
    assert 0.93 * rounds < held
    assert held_by_seeds < 0.85 * rounds


@pytest.mark.parametrize(
    ("values", "published", "expected"),
    [
        ([60.0, 62.0, 58.0, 61.0, 59.0], 63.0, "inside"),
        ([60.0, 62.0, 58.0, 61.0, 59.0], 70.0, "outside"),
        ([20.0, 80.0, 50.0, 30.0, 70.0], 70.0, "uninformative"),
        ([60.0, 62.0, 58.0, 61.0], 60.0, "too few seeds"),
        ([60.0, 62.0, 58.0, 61.0, None], 60.0, "too few seeds"),
        ([None], 60.0, "not run"),
        ([60.0] * 5, None, "not printed"),
        ([0.06] * 5, 0.1, "inside"),  # the paper's last digit
        ([0.04] * 5, 0.1, "outside"),
    ],
)
def test_what_is_said_of_a_published_number(values, published, expected):
    assert outcome(values, published) == expected


def test_published_cells_that_were_not_run_are_listed_in_their_place():
    printed = {("Original", "Hyena", 64): 2.6, ("Original", "Mamba", 64): 79.4, ("Original", "Mamba", 32): 74.4}
    cells = beside(rows([60.0, 61.0]), printed)
    assert [(cell.row, cell.width, cell.outcome) for cell in cells] == [
        ("Hyena", 64, "not run"),
        ("Mamba", 32, "not run"),
        ("Mamba", 64, "too few seeds"),
    ]
    assert counts(cells) == {"not run": 2, "too few seeds": 1}


def test_a_line_says_median_range_and_difference():
    [cell] = beside(rows([60.0, 62.0, 58.0, 61.0, 59.0]), {("Original", "Mamba", 64): 91.25})
    words = cells_of(cell)
    assert words[3:5] == ("5", "60.0 [58.0, 62.0]")
    assert words[6:] == ("91.25", "-31.2", "outside")
    assert len(markdown([cell])) == 3


def test_counts_are_equal_or_different():
    cell = Beside("AR", "Hyena", 16, (163584,), 163616, None, exact=True)
    assert cell.outcome == "different"
    assert "163,584" in cells_of(cell)

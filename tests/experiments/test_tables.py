"""Ours beside published: the interval of five seeds, and what can be said of a published number."""

import statistics

import numpy as np
import pytest

from mixerscope.experiments.paper.data import published_documents
from mixerscope.experiments.paper.sweeps import Choice, load_figure, measured_documents
from mixerscope.experiments.paper.tables import (
    Beside,
    beside,
    cells_of,
    counts,
    markdown,
    open_by_documents,
    prediction,
)


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


def with_ends(values: list[float], below: float, above: float) -> list[dict]:
    return [{**row, "low": row["value"] - below, "high": row["value"] + above} for row in rows(values)]


def test_fewer_documents_take_a_number_further_and_none_come_closer_than_documents_alone():
    assert open_by_documents(with_ends([60.0] * 5, 1.0, 2.0)) == (1.0, 2.0)
    assert open_by_documents(rows([60.0] * 5)) == (0.0, 0.0), "nothing is known of documents"
    seeds = [60.0, 62.0, 58.0, 61.0, 59.0]
    (low, high), (same_low, same_high) = prediction(seeds), prediction(seeds, (1.0, 2.0))
    assert (low, high) == (same_low, same_high), "the spread over seeds has as many documents in it"
    fewer_low, fewer_high = prediction(seeds, (1.0, 2.0), times=5.0)
    assert fewer_low == pytest.approx(60 - ((60 - low) ** 2 + 4.0) ** 0.5), "a fifth as many"
    assert fewer_high == pytest.approx(60 + ((high - 60) ** 2 + 16.0) ** 0.5)
    alike = prediction([60.0] * 5, (1.0, 2.0))
    assert alike == pytest.approx((60 - 1.2**0.5, 60 + 2 * 1.2**0.5)), "five seeds that chance to be alike"
    [few] = beside(with_ends([60.0] * 5, 1.0, 2.0), {("Original", "Mamba", 64): 57.7}, times=5.0)
    assert few.outcome == "inside"
    assert measured_documents(Choice()) / published_documents(load_figure("fig5")) == 5
    assert measured_documents(Choice()) == published_documents(load_figure("fig3")) == 320


@pytest.mark.parametrize(("ours", "theirs", "seeds_alone"), [(320, 320, (0.93, 0.97)), (320, 64, (0.5, 0.9))])
def test_the_interval_holds_a_run_on_documents_of_its_own(ours, theirs, seeds_alone):
    """Models that differ by their seed, a little or not at all; what is hard for one of them is not for another."""
    rng = np.random.default_rng(0)
    rounds, held, held_by_seeds = 600, 0, 0

    def measured(seeds: int, documents: int, base: float, spread: float) -> list[dict]:
        told = [rng.normal(rng.normal(base, spread), 15.0, documents) for _ in range(seeds)]
        values = rows([float(one.mean()) for one in told])
        ends = [1.96 * one.std(ddof=1) / documents**0.5 for one in told]
        return [
            {**row, "low": row["value"] - end, "high": row["value"] + end}
            for row, end in zip(values, ends, strict=True)
        ]

    for _ in range(rounds):
        base, spread = rng.uniform(5.0, 95.0), rng.uniform(0.0, 1.0)
        own, [other] = measured(5, ours, base, spread), measured(1, theirs, base, spread)
        values, within = [row["value"] for row in own], (-100.0, 200.0)
        for found, count in (
            (prediction(values, open_by_documents(own), ours / theirs, within), 1),
            (prediction(values, within=within), 0),
        ):
            inside = found[0] <= other["value"] <= found[1]
            held, held_by_seeds = held + inside * count, held_by_seeds + inside * (1 - count)
    assert 0.94 * rounds <= held
    assert seeds_alone[0] * rounds <= held_by_seeds <= seeds_alone[1] * rounds


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

"""Ours beside published: the interval of five seeds, and what can be said of a published number."""

import statistics

import pytest

from mixerscope.experiments.paper.tables import Beside, beside, cells_of, counts, markdown, prediction


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

"""Paired differences: where there is none the interval holds zero in 95 of 100 cases, and a real one is found."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mixerscope.analysis.differences import Comparison, Numbers, over_documents, over_paired_seeds
from mixerscope.analysis.stats import proportion_difference, seeds_difference
from mixerscope.errors import UserError
from mixerscope.randomness import stream

SAMPLES = 400
# With 400 samples 95% is measured to within 3.3 points in all but three cases of a thousand.
LOW, HIGH = 0.917, 0.983


def rand(n: int, rng: torch.Generator) -> Tensor:
    return torch.rand(n, generator=rng, dtype=torch.float64)


def right(n: int, rng: torch.Generator, by: float) -> tuple[Numbers, Numbers]:
    """Two models that get a third of the documents wrong, mostly the same ones; the first does better `by` so much."""
    hard, alone = rand(n, rng) < 0.25, 0.12
    left = ~hard & (rand(n, rng) > alone - by)
    return Numbers("accuracy", "", left, counted=True), Numbers(
        "accuracy", "", ~hard & (rand(n, rng) > alone), counted=True
    )


def likelihoods(n: int, rng: torch.Generator, by: float) -> tuple[Numbers, Numbers]:
    common = 0.1 + 0.6 * rand(n, rng)
    return tuple(Numbers("likelihood", "", common + 0.2 * rand(n, rng) + more) for more in (by, 0.0))


def shares(n: int, rng: torch.Generator, by: float) -> tuple[Numbers, Numbers]:
    gaps = [0.4 + 0.5 * rand(n, rng) for _ in range(2)]
    common = rand(n, rng)
    tops = [(0.2 + more + 0.3 * common + 0.2 * rand(n, rng)) * gap for gap, more in zip(gaps, (by, 0.0), strict=True)]
    return tuple(Numbers("share", "", top, gap) for top, gap in zip(tops, gaps, strict=True))


def routes(n: int, rng: torch.Generator, by: float) -> tuple[Numbers, Numbers]:
    counts = [rand(n, rng) < 0.9 for _ in range(2)]
    takes = [(rand(n, rng) < 0.6 + more) & count for count, more in zip(counts, (by, 0.0), strict=True)]
    return tuple(Numbers("route", "", take, count, counted=True) for take, count in zip(takes, counts, strict=True))


KINDS: dict[str, Callable[[int, torch.Generator, float], tuple[Numbers, Numbers]]] = {
    "accuracy": right,
    "likelihood": likelihoods,
    "share": shares,
    "route": routes,
}


def simulated(kind: str, by: float, n: int = 100) -> list[Comparison]:
    rng = stream(0, "differences", kind)
    return [over_documents(*KINDS[kind](n, rng, by)) for _ in range(SAMPLES)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_difference_is_called_noise(kind: str):
    assert LOW <= sum(found.noise for found in simulated(kind, 0.0)) / SAMPLES <= HIGH


@pytest.mark.parametrize(("kind", "by"), [("accuracy", 0.12), ("likelihood", 0.05), ("share", 0.1), ("route", 0.3)])
def test_a_real_difference_is_found(kind: str, by: float):
    found = simulated(kind, by, 320)
    assert sum(not one.noise for one in found) / SAMPLES > 0.95
    assert all(one.difference.value > 0 for one in found if not one.noise)


def test_pairing_finds_what_means_alone_would_miss():
    """Documents differ far more than the models do."""
    rng = stream(0, "paired")
    common = rand(320, rng)
    better = common * 0.9 + 0.02 + 0.01 * rand(320, rng)
    found = over_documents(Numbers("likelihood", "", better), Numbers("likelihood", "", common * 0.9))
    assert not found.noise
    unpaired = over_documents(Numbers("likelihood", "", better), Numbers("likelihood", "", (common * 0.9).flip(0)))
    assert unpaired.noise


@pytest.mark.parametrize("by", [0.0, 0.2])
def test_seeds_are_paired_and_students_interval_holds_the_difference(by: float):
    rng = stream(0, "seeds", str(by))
    held = 0
    for _ in range(SAMPLES):
        common = rand(5, rng) * 0.3
        a = common + 0.2 + by + 0.1 * torch.randn(5, generator=rng, dtype=torch.float64)
        b = common + 0.2 + 0.1 * torch.randn(5, generator=rng, dtype=torch.float64)
        found = over_paired_seeds("accuracy", a.tolist(), b.tolist())
        held += found.difference.low <= by <= found.difference.high
    assert LOW <= held / SAMPLES <= HIGH


def test_a_difference_over_seeds_by_hand():
    """0.1, 0.2, 0.3: mean 0.2, standard error 0.1 / sqrt(3), t = 4.3027."""
    found = seeds_difference([0.6, 0.8, 1.0], [0.5, 0.6, 0.7])
    assert found.value == pytest.approx(0.2)
    assert (found.low, found.high) == (pytest.approx(0.2 - 0.248414, abs=1e-5), pytest.approx(0.2 + 0.248414, abs=1e-5))
    assert seeds_difference([0.9, 0.0, 0.9], [0.0, 0.9, 0.0], within=1.0).high == 1.0


def test_seeds_that_differ_by_all_or_nothing_are_counted():
    """Three of three may be chance: each side may have seeds that fail. Five of five are not."""
    few, more = (over_paired_seeds("accuracy", [1.0] * n, [0.0] * n) for n in (3, 5))
    assert (few.noise, more.noise) == (True, False)
    same = over_paired_seeds("accuracy", [1.0] * 5, [1.0] * 5)
    assert same.difference.low < 0 < same.difference.high


def test_under_three_seeds_nothing_is_told_from_noise():
    found = over_paired_seeds("accuracy", [1.0, 0.9], [0.1, 0.2])
    assert (found.difference, found.noise) == (None, True)
    assert found.sentence() == (
        "accuracy: the first 0.950, the second 0.150, over 2 seeds; 2 seeds: no interval under 3, so it cannot be told"
        " from noise"
    )


def test_proportions_by_hand():
    """Of 10 documents one model alone has 3 and the other 1: (3 - 1) / 12 +- 1.96 sqrt((6 / 12 - 1 / 36) / 12)."""
    a = torch.tensor([1, 1, 1, 0, 1, 1, 0, 0, 0, 0]).bool()
    b = torch.tensor([0, 0, 0, 1, 1, 1, 0, 0, 0, 0]).bool()
    found = proportion_difference(a, b)
    assert found.value == pytest.approx(0.2)
    half = 1.959964 * ((6 / 12 - 1 / 36) / 12) ** 0.5
    assert (found.low, found.high) == (pytest.approx(1 / 6 - half), pytest.approx(1 / 6 + half))


def test_models_that_never_differ_may_differ_elsewhere():
    found = proportion_difference(torch.ones(64).bool(), torch.ones(64).bool())
    assert found.value == 0
    assert -0.1 < found.low < 0 < found.high < 0.1


def test_sentences_say_whether_it_is_noise():
    same = torch.ones(20).bool()
    numbers = Numbers("accuracy", "", same, counted=True)
    assert over_documents(numbers, numbers).sentence().endswith("; noise: the interval holds zero")
    other = Numbers("accuracy", "", ~same, counted=True)
    assert over_documents(numbers, other, ("mamba", "attention")).sentence() == (
        "accuracy: mamba 1.000, attention 0.000, over 20 documents of one seed each; difference +1.000"
        " [+0.735, +1.000]; more than noise: the interval does not hold zero"
    )


def test_what_cannot_be_paired_is_refused():
    ones = torch.ones(4)
    numbers = Numbers("likelihood", "a", ones)
    refused = {
        "not the same thing": Numbers("accuracy", "a", ones),
        "different documents": Numbers("likelihood", "b", ones),
        "not finite": Numbers("likelihood", "a", ones * float("nan")),
    }
    for message, other in refused.items():
        with pytest.raises(UserError, match=message):
            over_documents(numbers, other)
    with pytest.raises(UserError, match="changes too little"):
        over_documents(*[Numbers("share", "a", ones, torch.tensor([1.0, -1, 1, -1]))] * 2)
    with pytest.raises(UserError, match="no document counts in both"):
        over_documents(*[Numbers("route", "a", ones, part.bool(), counted=True) for part in (ones, ones * 0)])
    for a, b in (([], []), ([0.1], [0.1, 0.2])):
        with pytest.raises(UserError, match="takes as many of both"):
            over_paired_seeds("accuracy", a, b)
    with pytest.raises(UserError, match="not a finite number"):
        over_paired_seeds("accuracy", [float("inf")], [0.0])

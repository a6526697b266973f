"""Erasure: what is erased cannot be read again, and no more than that is taken."""

import pytest
import torch

from mixerscope.probing.erasure import (
    Eraser,
    RandomSubspaces,
    chance_of,
    iterated_projection,
    leace,
    residual,
    same_subspace,
    single_direction,
)
from mixerscope.probing.ridge import PENALTIES, Parts, fit_probes, moments

N, D, CLASSES = 1500, 16, 4
TOLERANCE = 0.02


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def data(models=2, copies=2, noise=0.5):
    """The label stands in the vectors several times, in different directions: one of them is never all."""
    label = torch.randint(CLASSES, (N,), generator=rng(1))
    codes = torch.randn(models, CLASSES, D, generator=rng(2), dtype=torch.float64)
    x = torch.stack([code[label] for code in codes])
    mixing = torch.randn(models, D, D, generator=rng(3), dtype=torch.float64)
    for _ in range(copies - 1):
        bits = torch.stack([(label[:, None] >> torch.arange(2)) & 1 for _ in range(models)]).double()
        x[..., :2] += bits
    return x + noise * torch.randn(models, N, D, generator=rng(4), dtype=torch.float64) @ mixing / D**0.5, label


def everything():
    every = torch.ones(N, dtype=torch.bool)
    return Parts(every, every, every)


def parts(n=N):
    at = torch.arange(n)
    return Parts(at % 5 < 3, at % 5 == 3, at % 5 == 4)


def with_dead_axes():
    """Numbers that never vary, and some that repeat others: the covariance has no inverse."""
    x, label = data()
    x[..., 5] = 7.0
    x[..., 6] = x[..., 7]
    return x, label


def with_scales():
    """As streams of trained models are: a few numbers are thousands of times as large as others, far from zero."""
    x, label = data()
    return x * torch.logspace(-2, 2, D, dtype=torch.float64) + 50, label


def with_two_classes():
    x, label = data()
    return x, label % 2


@pytest.mark.parametrize("given", [data, with_dead_axes, with_scales, with_two_classes])
def test_leace_is_that_of_the_reference_library(given):
    reference = pytest.importorskip("concept_erasure")
    x, label = given()
    eraser = leace(moments(x, everything()), label, everything())
    one_hot = torch.nn.functional.one_hot(label).double()
    for k in range(len(x)):
        fitter = reference.LeaceFitter(
            D, one_hot.shape[1], "leace", shrinkage=False, constrain_cov_trace=False, dtype=torch.float64
        ).update(x[k], one_hot)
        torch.testing.assert_close(eraser(x)[k], fitter.eraser(x[k]), rtol=1e-5, atol=1e-5)
        assert (eraser(x)[k] - x[k]).abs().max() > 0.1, "something is erased"


def test_after_leace_the_label_has_no_covariance_left_and_little_is_lost():
    x, label = data()
    eraser = leace(moments(x, everything()), label, everything())
    assert eraser.rank.tolist() == [CLASSES - 1] * 2
    after = eraser(x)
    one_hot = torch.nn.functional.one_hot(label).double()
    covariance = (after - after.mean(1, keepdim=True)).mT @ (one_hot - one_hot.mean(0)) / N
    assert covariance.abs().max() < 1e-10
    torch.testing.assert_close(eraser(after), after, rtol=1e-8, atol=1e-8)
    assert (residual(eraser, moments(x, parts()), label, parts()) < 1 / CLASSES + 0.08).all()
    assert (
        residual(Eraser(eraser.mean, torch.zeros_like(eraser.matrix), eraser.rank), moments(x, parts()), label, parts())
        > 0.9
    ).all()


def test_where_rounding_is_all_that_is_left_a_probe_reads_chance():
    """Of classes that are equally many, rounding would choose one for every vector, on each machine otherwise."""
    label = torch.arange(N) // 5 % 2  # as many of each in every part
    x = torch.randn(40, N, D, generator=rng(1), dtype=torch.float64) + 3.0 * label[:, None]
    found = moments(x, parts())
    assert label[parts().fit].double().mean() == 0.5
    eraser = leace(found, label, parts())
    assert (fit_probes(found, {"": label}, parts())[""].accuracy > 0.9).all()
    assert (residual(eraser, found, label, parts()) == 0.5).all()
    assert (fit_probes(eraser.left(found), {"": label}, parts())[""].weight == 0).all()


def test_a_single_direction_leaves_what_iterated_projection_takes():
    x, label = data()
    found = moments(x, parts())
    one = single_direction(found, fit_probes(found, {"": label}, parts())[""])
    all_ = iterated_projection(found, label, parts(), TOLERANCE)
    assert one.rank.tolist() == [1, 1]
    assert (residual(one, found, label, parts()) > 0.6).all(), "most of the label is still there"
    # At chance, or the most that may be taken is taken.
    left = residual(all_, found, label, parts())
    assert ((left <= 1 / CLASSES + TOLERANCE) | (all_.rank >= D // 4)).all()
    assert (all_.rank > 1).all()
    flat = all_.matrix
    torch.testing.assert_close(flat @ flat, flat, rtol=1e-6, atol=1e-6)


def in_two_directions(n, seed):
    label = torch.randint(2, (n,), generator=rng(seed))
    x = torch.randn(1, n, 24, generator=rng(seed + 1), dtype=torch.float64)
    x[..., 3] += 4.0 * label
    x[..., 7] += 2.0 * label
    return x, label


def test_iterated_projection_ends_at_chance():
    x, label = in_two_directions(N, 1)
    eraser = iterated_projection(moments(x, parts()), label, parts(), TOLERANCE)
    assert residual(eraser, moments(x, parts()), label, parts()).item() <= 0.5 + TOLERANCE
    assert eraser.rank.item() <= 6


@pytest.mark.parametrize("seed", range(4))
def test_of_other_vectors_iterated_projection_leaves_a_fresh_probe_next_to_nothing(seed):
    """It ends by what the judging vectors say, so that these say little of what it leaves."""
    many = 8 * N
    (x, label), (fresh, other) = in_two_directions(many, 2 * seed), in_two_directions(many, 100 + 2 * seed)
    found, there = moments(x, parts(many)), moments(fresh, parts(many))
    probe = fit_probes(found, {"": label}, parts(many))[""]
    one, all_ = single_direction(found, probe), iterated_projection(found, label, parts(many), TOLERANCE)
    left = [residual(eraser, there, other, parts(many)).item() for eraser in (one, all_)]
    assert fit_probes(there, {"": other}, parts(many))[""].accuracy.item() > 0.95
    assert left[1] < 0.5 + 2 * TOLERANCE < left[0]


def test_of_documents_that_it_was_not_fitted_to_leace_leaves_what_those_it_was_fitted_to_do_not_show():
    """Chance where it was found is so by construction, and no test of what was erased."""
    few, width = 200, 60
    label = torch.randint(2, (few * 10,), generator=rng(1))
    x = 0.05 * torch.randn(1, few * 10, width, generator=rng(2), dtype=torch.float64)
    x[..., 3] += 2.0 * label - 1
    seen = torch.arange(few * 10) < few
    at = torch.arange(few * 10) % 4
    own, others = (Parts(which & (at < 2), which & (at == 2), which & (at == 3)) for which in (seen, ~seen))
    eraser = leace(moments(x, own), label, own)
    assert residual(eraser, moments(x, own), label, own).item() == 0.5
    assert residual(eraser, moments(x, others), label, others).item() > 0.6


def loud_and_silent(seed=2):
    """Two classes that a loud direction and seven nearly silent ones each tell apart without a mistake, none of them
    along a single number, as in streams of trained models; and [d, d] the directions, the loud one first."""
    sizes = torch.tensor([1.0, 0.1, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04], dtype=torch.float64)
    label = torch.arange(N) // 5 % 2  # as many of each in every part
    noise = torch.randn(1, N, 32, generator=rng(seed), dtype=torch.float64)
    x = 0.1 * noise
    x[..., : len(sizes)] = sizes * (2.0 * label[:, None] - 1 + 0.3 * noise[..., : len(sizes)].clamp(-3, 3))
    turn = torch.ones(1, 1, dtype=torch.float64)
    while len(turn) < x.shape[-1]:
        turn = torch.cat([torch.cat([turn, turn], 1), torch.cat([turn, -turn], 1)]) / 2**0.5
    return x @ turn, label, turn


def test_of_equally_good_penalties_the_largest_is_taken():
    x, label, _ = loud_and_silent()
    found = moments(x, parts())
    each = [fit_probes(found, {"": label}, parts(), [penalty])[""] for penalty in PENALTIES]
    assert all(one.accuracy.item() == 1 for one in each), "all of them tell every vector rightly"
    for order in (PENALTIES, PENALTIES[::-1]):
        probe = fit_probes(found, {"": label}, parts(), order)[""]
        assert probe.penalty.item() == max(PENALTIES)
        assert torch.equal(probe.weight, each[-1].weight)


def test_a_penalty_that_tells_less_is_not_taken_for_being_larger():
    """A direction that tells the classes apart, beside one that says a little of them and a hundred times as much."""
    label = torch.arange(N) // 5 % 2
    noise = 10 * torch.randn(N, generator=rng(2), dtype=torch.float64)
    x = torch.stack([noise + 2 * label, noise + label], -1)[None]
    found = moments(x, parts())
    assert fit_probes(found, {"": label}, parts(), [max(PENALTIES)])[""].accuracy.item() < 0.7
    probe = fit_probes(found, {"": label}, parts())[""]
    assert probe.accuracy.item() == 1
    assert probe.penalty.item() < max(PENALTIES)


def test_where_the_choosing_vectors_lack_a_class_the_largest_penalty_is_not_taken_for_never_naming_it():
    """Of few different documents all that choose may be of one class, which the most frequent answer tells rightly."""
    label = (torch.arange(N) // 5 % 10 < 3).long()
    x = torch.randn(1, N, D, generator=rng(2), dtype=torch.float64)
    x[..., 3] += 12 * label
    whole = parts()
    lacking = Parts(whole.fit, whole.choose & (label == 0), whole.judge)
    found = moments(x, lacking)
    each = [fit_probes(found, {"": label}, lacking, [penalty])[""] for penalty in PENALTIES]
    assert each[-1].accuracy.item() == 0.5, "it names the frequent one alone"
    assert fit_probes(found, {"": label}, lacking)[""].accuracy.item() == 1


@pytest.mark.parametrize("seed", range(2, 5))
def test_what_is_loud_and_silent_is_read_and_erased_along_the_loud_direction(seed):
    """By the smallest penalty silent ones were read and taken one after the other, until the most that may be taken was
    taken and the label still there."""
    x, label, turn = loud_and_silent(seed)
    found, loud = moments(x, parts()), turn[0]
    for direction in turn[:8]:
        alone = moments((x @ direction)[..., None], parts())
        assert fit_probes(alone, {"": label}, parts())[""].accuracy.item() == 1, "each of them tells all"
    probe = fit_probes(found, {"": label}, parts())[""]
    assert (probe.directions()[0, :, 0] @ loud).abs() > 0.95
    eraser = iterated_projection(found, label, parts(), TOLERANCE)
    assert residual(eraser, found, label, parts()).item() <= 0.5 + TOLERANCE
    assert eraser.rank.item() <= 6, "of eight that may be taken"
    assert loud @ eraser.matrix[0] @ loud > 0.95


def test_random_subspaces_are_as_large_as_what_they_stand_for():
    x, label = data(models=3)
    x[..., :4] *= 3
    found = moments(x, parts())
    like = leace(found, label, parts())
    drawn = RandomSubspaces.like(like, found, 30, rng())
    for maps in (drawn.rank, drawn.variance):
        assert maps.shape == (3, 30, D, D)
        torch.testing.assert_close(maps @ maps, maps, rtol=1e-8, atol=1e-8)
        ranks = maps.diagonal(dim1=-2, dim2=-1).sum(-1).round()
        assert torch.equal(ranks, like.rank[:, None].expand_as(ranks).double())
    plain, alike = (
        torch.stack([Eraser(like.mean, one, like.rank).variance(found) for one in maps.unbind(1)]).mean(0)
        for maps in (drawn.rank, drawn.variance)
    )
    assert ((alike - like.variance(found)).abs() <= (plain - like.variance(found)).abs() + 0.02).all()
    assert torch.equal(RandomSubspaces.like(like, found, 30, rng()).rank, drawn.rank)
    assert not torch.equal(RandomSubspaces.like(like, found, 30, rng(1)).rank, drawn.rank)
    assert RandomSubspaces.like(like, found, 0, rng()).rank.shape == (3, 0, D, D)


def test_the_same_span_has_no_angle():
    basis = torch.linalg.qr(torch.randn(1, 6, 2, generator=rng(), dtype=torch.float64)).Q
    turned = basis @ torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    assert same_subspace(basis, turned).item() == pytest.approx(1)
    assert chance_of(torch.tensor([0, 3, 3])) == 0.5

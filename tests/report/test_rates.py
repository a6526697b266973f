"""Which run stands for a seed, and the flag on a best learning rate that was the last one tried."""

from types import SimpleNamespace

from mixerscope.artifacts import Curve, Evaluation
from mixerscope.report.rates import at_the_edge, best_first, chosen_runs

from .conftest import find_run, give_verdict
from .reading import page_of


def ran(lr, dev, seed=0, width=8, outcome="finished"):
    curve = Curve((Evaluation(10, 0.5, dev, dev),))
    training = {"seed": seed, "train": {"lr": lr}}
    status = SimpleNamespace(outcome=outcome)
    return SimpleNamespace(series="based", width=width, training=training, curve=curve, any_accuracy=dev, status=status)


def test_of_each_seed_the_best_rate_is_chosen_and_one_that_diverged_is_not():
    models = [ran(0.1, 0.5), ran(0.2, 0.9), ran(0.3, 0.99, outcome="diverged"), ran(0.1, 0.4, seed=1)]
    assert chosen_runs(models) == [models[1], models[3]]


def test_a_best_rate_at_the_edge_of_the_grid_is_flagged():
    models = [ran(lr, dev, seed) for seed in (0, 1, 2) for lr, dev in ((0.1, 0.5), (0.2, 0.6), (0.3, 0.7))]
    assert at_the_edge(models) == [
        {"series": "based", "width": 8, "lr": 0.3, "end": "largest", "seeds": 3, "of": 3},
    ]


def test_a_rate_inside_the_grid_or_a_grid_of_two_is_not():
    inside = [ran(0.1, 0.5), ran(0.2, 0.6), ran(0.3, 0.4)]
    assert at_the_edge(inside) == []
    assert at_the_edge(inside[:2]) == []


def test_most_seeds_decide():
    models = [ran(lr, 1 - abs(lr - best), seed) for seed, best in enumerate((0.1, 0.2, 0.2)) for lr in (0.1, 0.2, 0.3)]
    assert at_the_edge(models) == []


def test_what_a_slot_must_lose_to_be_read_is_shown_beside_the_test(folder):
    from mixerscope.artifacts import Estimate
    from mixerscope.artifacts.verdicts import Test as Asked

    root = folder("based")
    asked = (
        Asked("reads the key", True, Estimate(0.74, 0.69, 0.79, 320)),
        Asked("sufficient", True, Estimate(0.97, 0.94, 0.99, 200), 0.9),
        Asked("robust: 7 pairs", None, about="45% of these are answered"),
    )
    give_verdict(find_run(root, "based"), "induction", ["key", "value", "query"], tests=asked)
    text = page_of(root).visible()
    assert "reads the key 0.740 [0.690, 0.790] 0.74 any > 0.20" in text
    assert "sufficient 0.970 [0.940, 0.990] 0.97 > 0.90" in text
    assert "robust: 7 pairs 45% of these are answered" in text


def test_the_best_of_each_series_come_first_then_every_route_that_has_a_name():
    def judged(series, dev, route=()):
        model = ran(0.1, dev)
        model.series, model.verdict = series, SimpleNamespace(route=route)
        model.mechanism = "induction" if route else "undetermined"
        return model

    poor, good = judged("attention", 0.2), judged("attention", 0.4)
    best, named, again, other = (
        judged("based", dev, route) for dev, route in ((0.99, ()), (0.9, "kvq"), (0.8, "kvq"), (0.85, ()))
    )
    assert best_first([poor, good, again, named, other, best]) == [good, best, named, again, other, poor]

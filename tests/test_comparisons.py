"""`compare` on models whose difference is known, and on what cannot be compared."""

from functools import cache

import pytest

import mixerscope as ms
from mixerscope.errors import UserError
from mixerscope.planted import EVERY
from mixerscope.planted.truth import TASK
from tests.conftest import tiny_spec, with_stage

PAIRS = ms.make_pairs(TASK, ms.PairSettings(documents=64, avoid_present=True), data_seed=0)
RESTORE = ms.Cell("key", "restore", "blocks.1.resid_pre", "value")


@cache
def planted(name: str, seed: int = 0) -> ms.Model:
    [found] = [each for each in EVERY if each.name == name]
    assert found.task == TASK
    return found.build(TASK, seed)


def induction() -> ms.Model:
    return planted("induction, attention")


def test_models_that_do_the_same_do_not_differ():
    other = planted("induction, attention", 1)
    for what in ("accuracy", "induction", ("key", "value", "query"), RESTORE):
        found = ms.compare(induction(), other, what, pairs=PAIRS)
        assert found.noise, found.sentence()
        assert found.a == pytest.approx(found.b, abs=0.01)


def test_a_model_that_confuses_keys_is_less_accurate():
    found = ms.compare(induction(), planted("induction that confuses keys"), pairs=PAIRS)
    assert not found.noise
    assert 0.1 < found.difference.value < 0.35
    assert (found.n, found.paired_by) == (64, "document")
    likelihood = ms.compare(induction(), planted("induction that confuses keys"), "likelihood", pairs=PAIRS)
    assert likelihood.difference.low > 0


@pytest.mark.parametrize(
    ("name", "route", "truth"),
    [
        ("another route for half of the keys", "induction", 0.5),
        ("another route for half of the keys", "association one step later", -0.5),
        ("direct retrieval, block 1", "induction", 1.0),
        ("direct retrieval, block 1", ("key", "query"), -1.0),
    ],
)
def test_shares_of_documents_that_take_a_route(name: str, route: ms.Cell | str, truth: float):
    found = ms.compare(induction(), planted(name), route, pairs=PAIRS)
    assert not found.noise
    assert found.difference.low <= truth <= found.difference.high
    assert found.difference.value == pytest.approx(truth, abs=0.2)


def test_cells_and_gaps_of_grids():
    grids = [ms.interchange(model, PAIRS, [RESTORE]) for model in (induction(), planted("direct retrieval, block 1"))]
    found = ms.compare(*grids, RESTORE)
    assert found.what == "share of the gap, restore value at blocks.1.resid_pre, key corrupted"
    assert (found.a, found.b) == (pytest.approx(1, abs=0.02), pytest.approx(0, abs=0.02))
    assert found.difference.low > 0.9
    assert ms.compare(grids[0], grids[0], "gap").difference.value == 0
    assert ms.compare(*grids, "gap", slot="value").what == "gap when the value is corrupted"


def test_lists_of_models_are_seeds():
    some = [planted("induction, attention", seed) for seed in range(3)]
    others = [planted("another route for half of the keys", seed) for seed in range(3)]
    found = ms.compare(some, others, "induction", pairs=PAIRS)
    assert (found.n, found.paired_by, found.noise) == (3, "seed", False)
    assert found.a == 1
    assert ms.compare([0.9, 0.8, 0.85], [0.1, 0.2, 0.1]).difference.value == pytest.approx(0.85 - 0.4 / 3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, list[ms.Result]]:
    """Three seeds each of two architectures, and one on other documents."""
    root = tmp_path_factory.mktemp("runs")
    specs = {name: [tiny_spec(name).changed(seed=seed) for seed in range(3)] for name in ("attention", "based")}
    specs["elsewhere"] = [tiny_spec().changed(data_seed=1)]
    specs["unpatched"] = [tiny_spec("based", lr=2e-3).changed(stages={})]
    specs["more documents"] = [with_stage(tiny_spec(lr=2e-3), "patch", documents=9)]
    return {name: ms.run_cohort(some, root) for name, some in specs.items()}


def test_runs_are_compared_by_document_and_named_by_what_differs(runs):
    found = ms.compare(runs["attention"][0], runs["based"][0], "likelihood")
    tables = [run.effects.likelihood("original") for run in (runs["attention"][0], runs["based"][0])]
    assert found.difference.value == pytest.approx((tables[0] - tables[1]).mean().item())
    assert found.names == ("attention", "based")
    assert found.sentence().startswith("likelihood of the answer: attention 0.")


def test_runs_of_the_same_seeds_are_compared_by_seed_in_any_order(runs):
    found = ms.compare(runs["attention"], list(reversed(runs["based"])), "gap")
    assert (found.n, found.paired_by, found.names) == (3, "seed", ("attention", "based"))
    assert found == ms.compare(runs["attention"], runs["based"], "gap")


def test_what_cannot_be_compared_is_refused(runs):
    attention, based = runs["attention"], runs["based"]
    refused = {
        "different documents": (attention[0], runs["elsewhere"][0]),
        "measured on different": (attention[0], runs["more documents"][0]),
        "has no effects.safetensors": (attention[0], runs["unpatched"][0]),
        "a list of seeds is compared with a list of seeds": (attention, based[0]),
        "seeds 0, 1, 2 cannot be paired with seeds 0, 1;": (attention, based[:2]),
        "differ in their seed, and in nothing else": (attention, [*based[:2], attention[2]]),
        "one of the lists of seeds is empty": (attention, []),
        "str cannot be compared": (attention[0], "runs/based"),
        "give `pairs`": (induction(), induction()),
    }
    for message, (a, b) in refused.items():
        with pytest.raises(UserError, match=message):
            ms.compare(a, b)


def test_what_nobody_measured_is_refused(runs):
    a, b = runs["attention"][0], runs["based"][0]
    head = ms.Cell("key", "restore", "blocks.0.mixer.q", "value")
    refused = {
        "no quantity or mechanism named 'acuracy'; did you mean 'accuracy'": "acuracy",
        "was put to the proof; the stage `prove`": "induction",
        "a route begins at a slot that was patched": ("query",),
        "a route ends where the answer is read, at the query, not at value": ("key", "value"),
        "no place that was tried named 'vlue'; did you mean 'value'": ("key", "vlue", "query"),
        "did not keep the single documents": head,
    }
    for message, what in refused.items():
        with pytest.raises(UserError, match=message):
            ms.compare(a, b, what)
    with pytest.raises(UserError, match="induction is a route of the key, not of the value"):
        ms.compare(a, b, "induction", slot="value")
    with pytest.raises(UserError, match="no slot that was corrupted named 'ky'"):
        ms.compare(a, b, "gap", slot="ky")
    grid = ms.interchange(induction(), PAIRS, [RESTORE])
    with pytest.raises(UserError, match="a grid alone does not tell which documents take induction"):
        ms.compare(grid, grid, "induction")
    with pytest.raises(UserError, match="this grid has no cell restore value at blocks"):
        ms.compare(grid, grid, head)

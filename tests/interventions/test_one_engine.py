"""One engine for one model, K stacked ones and foreign modules: it runs functions, and works the rest out once."""

from dataclasses import replace

import pytest
import torch

from mixerscope.interventions import (
    METRICS,
    Cell,
    Grid,
    PairSettings,
    adapt,
    interchange,
    interchange_cohort,
    make_pairs,
    plan_grid,
    self_test,
)
from mixerscope.interventions.edits import EDITS
from mixerscope.interventions.plan import editable_sites
from mixerscope.interventions.programs import Programs, runner_of
from mixerscope.interventions.resume import Resumed
from mixerscope.interventions.runner import AFTER, OTHER, Standing
from mixerscope.interventions.schedule import SAME, Schedule, Scheduler
from mixerscope.interventions.whole_pass import WholePass
from mixerscope.model import Model, build_model
from mixerscope.randomness import construction
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR
from tests.interventions.homemade import SITES, HomeMade

TASK = AR(num_pairs=2, num_keys=4, num_values=4)
PAIRS = make_pairs(TASK, PairSettings(documents=5), data_seed=0)


def make(seed: int = 0, architecture: str = "mamba") -> Model:
    spec = ModelSpec(architecture=architecture, width=8, layers=2, max_length=16, init="small_model")
    return build_model(spec, TASK.vocab_size, seed).double()


def blind(model: Model) -> Model:
    """Takes all tokens for the same."""
    with torch.no_grad():
        model.token_embedding.weight.copy_(model.token_embedding.weight[0].clone())
    return model


def foreign():
    with construction(0):
        return adapt(HomeMade(TASK.vocab_size, 12), SITES, head="out", logits=lambda out: out["scores"])


def assert_equal(found: Grid, want: Grid, **tolerance: float) -> None:
    assert list(found.cells) == list(want.cells)
    for cell, expected in want.cells.items():
        measured = found.cells[cell]
        assert (measured.status, measured.reason) == (expected.status, expected.reason), cell
        for metric in METRICS:
            mine, other = getattr(measured.effects, metric), getattr(expected.effects, metric)
            torch.testing.assert_close(mine, other, **tolerance)


def test_the_ways_to_run_an_edit_share_no_base_class():
    for runner in (Resumed, WholePass):
        assert runner.__mro__ == (runner, object)
    assert type(runner_of(make())) is Resumed
    assert type(runner_of(foreign())) is WholePass


def test_a_runner_keeps_nothing_of_a_run():
    model, read = make(), PAIRS.reads.positions
    places, site = PAIRS.places("key"), "blocks.1.resid_pre"
    used, fresh = Resumed(model), Resumed(model)
    with torch.no_grad():
        first, second = (used.run(batch.tokens, read, [site]) for batch in (PAIRS.original, PAIRS.corrupted["key"]))
        value = second.cache[site][torch.arange(5)[:, None], places]
        found = used.leaves(first, site, places, value)
        assert torch.equal(found, fresh.leaves(first, site, places, value))
    assert not torch.equal(used.read_out(found), first.logits)


@pytest.mark.parametrize("architecture", ["attention", "mamba", "base_conv"])
def test_after_the_last_mixer_a_run_has_only_what_is_asked_for_and_nothing_in_place_of_the_rest(architecture: str):
    model, read = make(architecture=architecture), PAIRS.reads.positions
    places = torch.stack([PAIRS.positions("key"), PAIRS.positions("query")], 1)  # the second is the one that is read
    sites = [site for site in editable_sites(model) if site != "embed"]
    with torch.no_grad():
        whole = Resumed(model).run(PAIRS.original.tokens, read, sites)
        narrow = Resumed(model).run(PAIRS.original.tokens, read, sites, places)
    torch.testing.assert_close(narrow.logits, whole.logits)
    asked = torch.zeros_like(PAIRS.original.tokens, dtype=torch.bool).scatter(1, torch.cat([read, places], 1), True)
    left_out = set[str]()
    for site in sites:
        missing = narrow.cache[site].isnan()
        left_out |= {site} if missing.any() else set()
        torch.testing.assert_close(narrow.cache[site][asked], whole.cache[site][asked])
        assert not missing.any() or bool(missing[~asked].all())
    finishing = {"mlp_in", "mlp_out", "resid_mid", "resid_post"}
    assert left_out == {site for site in sites if site.split(".")[1] == "1" and site.split(".")[2] in finishing}


def test_whether_programs_run_once_for_all_models_or_once_for_each_makes_no_difference(monkeypatch):
    """A program that wrote down what it finds would write it down once here and three times there."""
    models = [make(0), blind(make(1)), make(2)]
    plan = plan_grid(models[0], PAIRS, roles=["key", "value&query"], edits=["swap", "noise", "zero"])[::2]
    at_once = interchange_cohort(models, PAIRS, plan, batch_documents=3)
    stacked, calls = torch.vmap, []

    def one_by_one(program, randomness):
        def counted(*given):
            calls.append(program)
            return program(*given)

        return stacked(counted, randomness=randomness, chunk_size=1)

    monkeypatch.setattr(torch, "vmap", one_by_one)
    for found, want in zip(interchange_cohort(models, PAIRS, plan, batch_documents=3), at_once, strict=True):
        assert_equal(found, want, rtol=1e-8, atol=1e-12)
    assert len(calls) == 3 * len({id(program) for program in calls}) > 3


@pytest.mark.parametrize("count", [1, 3])
def test_one_schedule_serves_all_models(count: int, monkeypatch):
    made: list[Schedule] = []
    run: list[Schedule] = []
    schedule, effects = Scheduler.schedule, Programs.effects

    def noting(self, cells, standings, agreed, idle, per_pass):
        assert all(isinstance(spot, tuple) for spot in agreed)
        assert all(isinstance(cell, Cell) for cell in idle)
        made.append(schedule(self, cells, standings, agreed, idle, per_pass))
        return made[-1]

    def running(self, tokens, which, others, per_read):
        run.append(which)
        return effects(self, tokens, which, others, per_read)

    monkeypatch.setattr(Scheduler, "schedule", noting)
    monkeypatch.setattr(Programs, "effects", running)
    interchange_cohort([make(seed) for seed in range(count)], PAIRS, batch_documents=3)
    assert len(made) == 3 * 2 * 2  # slots, directions and chunks, however many models
    assert all(one is other for one, other in zip(made, run, strict=True))


@pytest.mark.parametrize("architecture", ["attention", "mamba", "base_conv"])
def test_a_stack_shares_the_runs_that_one_model_shares(architecture: str):
    models = [make(seed, architecture) for seed in range(3)]
    for grid, model in zip(interchange_cohort(models, PAIRS), models, strict=True):
        assert_equal(grid, interchange(model, PAIRS), rtol=1e-8, atol=1e-12)
    assert any(cell.site.endswith("mixer_out") and measured.reason for cell, measured in grid.cells.items())


def test_what_is_the_same_in_one_model_only_has_the_bits_of_its_unedited_run():
    models = [make(0, "attention").float(), blind(make(1, "attention")).float()]
    plan = plan_grid(models[0], PAIRS, ["blocks.0.mixer_in", "blocks.0.mixer_out", "blocks.1.mixer_in"], ["key"])
    sees, blinded = interchange_cohort(models, PAIRS, plan)
    assert {measured.status for measured in sees.cells.values()} == {"measured"}
    for cell, measured in blinded.cells.items():
        assert (measured.status, measured.reason) == ("same", SAME)
        unedited = blinded.corrupted["key"] if cell.direction == "restore" else blinded.original
        for metric in ("likelihood", "logit", "kl"):  # counterfactuals are those of the corrupted run
            assert torch.equal(getattr(measured.effects, metric), getattr(unedited, metric)), cell


def test_a_foreign_module_gets_the_self_test_of_its_grids():
    model = foreign()
    plan = plan_grid(model, PAIRS, roles=["key"])
    with torch.inference_mode():
        alone = self_test(model, PAIRS, sorted({cell.site for cell in plan}))
    assert alone == interchange(model, PAIRS, plan).self_test
    assert {test.resume_error for test in alone.sites} == {0.0}


class Chain:
    """A runner without a model: sites a, b, c, of which b becomes c where both documents agree on a."""

    def run(self, tokens, read, sites):
        raise AssertionError("a schedule runs nothing")

    leaves = read_out = run

    def is_other(self, site, standing):
        return site == "a" and standing.all_changed

    def no_path(self, site, standing):
        return AFTER if standing.all_after else None

    def added_to(self, site):
        return "a" if site == "b" else None

    def stand_in(self, site, added_to_same):
        return "c" if site == "b" and added_to_same else site

    def stand_ins(self, sites):
        return {self.stand_in(site, True) for site in sites}


BEFORE, LATE = Standing(1, False, False, False), Standing(1, True, True, False)


def schedule_of(cells: list[Cell], **known) -> Schedule:
    roles = {"key": BEFORE, "value": BEFORE, "key&value": replace(BEFORE, positions=2), "late": LATE}
    settings = {"agreed": frozenset(), "idle": frozenset(), "per_pass": 8, **known}
    scheduler = Scheduler(Chain(), cells, EDITS)
    assert scheduler.sites == sorted(
        {cell.site for cell in cells} | ({"c"} if any(c.site == "b" for c in cells) else set())
    )
    return scheduler.schedule(scheduler.of("key", "restore"), roles, **settings)


def test_a_schedule_follows_from_names_and_facts_alone():
    a, b, c = (Cell("key", "restore", site, "key") for site in "abc")
    late, noise = replace(b, role="late"), replace(b, edit="noise")
    head, both = replace(b, head=1), replace(c, role="key&value")
    found = schedule_of([a, b, c, late, noise, head, both], agreed={("a", "key")}, idle={a})
    assert found.proven == ((a, "same", SAME), (late, "no path", AFTER))
    runs = [[(run.site, run.cells) for run in together] for together in found.passes]
    assert runs == [
        [("c", ((b, "same edit as at c"), (c, "")))],
        [("b", ((noise, ""),)), ("b", ((head, ""),))],
        [("c", ((both, ""),))],
    ]
    assert [len(together) for together in schedule_of([a, b, c, noise, head]).passes] == [1, 3, 1]
    assert [len(together) for together in schedule_of([a, b, c, noise, head], per_pass=2).passes] == [1, 2, 1, 1]


def test_an_edit_that_leaves_nothing_of_the_document_has_the_numbers_of_the_other_one():
    a, noise = Cell("key", "restore", "a", "key"), Cell("key", "restore", "a", "key", edit="noise")
    scheduler = Scheduler(Chain(), [a, noise], EDITS)
    everywhere = {"key": replace(BEFORE, all_changed=True)}
    found = scheduler.schedule(scheduler.of("key", "restore"), everywhere, frozenset(), frozenset(), 8)
    assert found.other == ((a, OTHER),)
    assert [run.cell for together in found.passes for run in together] == [noise]
    grid = interchange(make(), PAIRS, plan_grid(make(), PAIRS, roles=["key", "value", "query"]))
    others = {(cell.site, cell.role) for cell, measured in grid.cells.items() if measured.reason == OTHER}
    assert others == {("embed", "key"), ("blocks.0.resid_pre", "key"), ("blocks.1.resid_post", "query")}
    for cell, measured in grid.cells.items():
        if measured.reason == OTHER:
            other = grid.against["key"] if cell.direction == "restore" else grid.corrupted["key"]
            for metric in ("likelihood", "accuracy", "logit", "logit_difference"):
                assert torch.equal(getattr(measured.effects, metric), getattr(other, metric))
            assert bool((measured.effects.kl > 0).all())


def test_positions_stand_for_all_that_differs_or_all_that_is_read_in_every_document():
    read = torch.tensor([[5], [6]])
    changed = torch.zeros(2, 8, dtype=torch.bool)
    changed[0, 2] = changed[1, 3] = True
    found = Standing.of(torch.tensor([[2], [3]]), read, changed)
    assert found == Standing(1, False, False, False, all_read=False, all_changed=True)
    assert Standing.of(torch.tensor([[2], [2]]), read, changed).all_changed is False
    assert Standing.of(torch.tensor([[2, 5], [3, 6]]), read, changed) == Standing(2, False, False, True, True, True)
    assert Standing.of(torch.tensor([[5], [5]]), read, changed).all_read is False
    two = torch.tensor([[5, 4], [6, 4]])
    assert Standing.of(read, two, changed).all_read is False
    assert Standing.of(two, two, changed).all_read is True

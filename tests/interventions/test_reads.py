"""Reads: effects are measured where the pairs say, at one position or at many, for whatever symbol is asked for."""

from dataclasses import replace

import pytest
import torch

from mixerscope.artifacts.effects import EffectTable
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions import (
    METRICS,
    Cell,
    Effects,
    Pairs,
    PairSettings,
    Reads,
    attribution_patching,
    effect_table,
    interchange,
    interchange_cohort,
    make_pairs,
    patch_paths,
    plan_grid,
    verdict,
)
from mixerscope.interventions.plan import full_plan
from mixerscope.model import build_model
from mixerscope.planted import RETRIEVERS
from mixerscope.sites import edit, record
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR, MQAR, UNSCORED
from tests.interventions.test_one_engine import TASK, foreign, make

READS = ("answer", "counterfactual:value")
SETTINGS = PairSettings(documents=5, slots=("key", "value"), symbols="slot-class", avoid_present=True)
PAIRS = make_pairs(TASK, SETTINGS, data_seed=0)
LENGTH = PAIRS.original.tokens.shape[1]


def probing() -> Pairs:
    """Documents that ask at every position for the token that stands there, as a probe of each position would."""
    tokens = PAIRS.original.tokens
    dense = replace(PAIRS.original, targets=tokens)
    reads = Reads.at(dense, {f"pos:{i}": torch.full((len(tokens),), i) for i in range(LENGTH)})
    return replace(PAIRS, original=dense, asked=reads)


def slow(model, pairs: Pairs, cell: Cell) -> torch.Tensor:
    """[n, t, v] the logits at every position, by one hook and a whole pass."""
    base, source = pairs.corrupted[cell.slot], pairs.original
    if cell.direction == "break":
        base, source = source, base
    with record(model, [cell.site]) as found, torch.no_grad():
        model(source.tokens)

    def write(x):
        x = x.clone()
        for i, positions in enumerate(pairs.places(cell.role).tolist()):
            for p in positions:
                x[i, p] = found[cell.site][i, p]
        return x

    with edit(model, {cell.site: write}), torch.no_grad():
        return model(base.tokens)


@pytest.mark.parametrize("architecture", ["attention", "mamba", "deltanet", "hyena", "foreign"])
def test_reads_at_every_position_equal_the_slow_loop_in_every_cell(architecture: str):
    model = foreign().double() if architecture == "foreign" else make(architecture=architecture)
    pairs = probing()
    plan = plan_grid(model, pairs, roles=["key", "value", "key&query"])
    grid = interchange(model, pairs, plan, batch_documents=3)
    moved = 0
    for cell, measured in grid.cells.items():
        want = Effects.of(slow(model, pairs, cell), pairs.reads.targets)
        assert measured.effects.likelihood.shape == (5, LENGTH)
        torch.testing.assert_close(measured.effects.likelihood, want.likelihood, rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(measured.effects.logit, want.logit, rtol=1e-9, atol=1e-12)
        moved += measured.status == "measured"
    assert moved > len(plan) // 4


def test_models_of_a_cohort_read_at_many_positions_what_each_reads_alone():
    models, pairs = [make(0), make(1), make(2)], probing()
    plan = plan_grid(models[0], pairs)[::3]
    for model, found in zip(models, interchange_cohort(models, pairs, plan), strict=True):
        alone = interchange(model, pairs, plan)
        for cell in plan:
            for metric in METRICS:
                mine, other = (getattr(grid.cells[cell].effects, metric) for grid in (found, alone))
                torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-11)


def test_one_of_several_reads_is_the_grid_that_reads_there_alone():
    model, pairs = make(), make_pairs(TASK, SETTINGS.changed(reads=READS), data_seed=0)
    plan = full_plan(model, pairs)
    both, alone = interchange(model, pairs, plan), interchange(model, PAIRS, plan)
    first = both.reading("answer")
    assert first.pairs.reads.names == ("answer",)
    for cell, measured in alone.cells.items():
        torch.testing.assert_close(first.cells[cell].effects.likelihood, measured.effects.likelihood)
        assert first.cells[cell].status == measured.status
    assert alone.reading("answer") is alone
    with pytest.raises(UnknownName, match="did you mean 'answer'"):
        both.reading("anwser")


def test_an_edit_that_no_read_can_see_is_proven_to_change_nothing_and_one_that_any_can_see_is_run():
    model, late = make(), [Cell("key", "break", "blocks.1.resid_pre", f"pos:{LENGTH - 1}")]
    early = replace(PAIRS, asked=Reads.at(probing().original, {"pos:2": torch.full((5,), 2)}))
    assert interchange(model, early, late).cells[late[0]].status == "no path"
    both = probing().reads.only(["pos:2", f"pos:{LENGTH - 1}"])
    ran = interchange(model, replace(probing(), asked=both), late).cells[late[0]]
    assert ran.status == "measured"


def test_asking_for_the_counterfactual_answer_measures_interchange_accuracy():
    """Restoring the query of a document with another value, after the block that retrieves, brings the answer back;
    breaking it brings the counterfactual's answer."""
    planted = RETRIEVERS[0]
    model = planted.build(planted.task, 0)
    settings = PairSettings(documents=32, slots=("value",), symbols="slot-class", avoid_present=True, reads=READS)
    pairs = make_pairs(planted.task, settings, data_seed=0)
    assert torch.equal(pairs.reads.targets[:, 1], pairs.reads.others["value"][:, 0])
    assert torch.equal(pairs.reads.targets[:, 0], pairs.reads.others["value"][:, 1])
    grid = interchange(model, pairs)
    answer, counterfactual = (grid.reading(name) for name in READS)
    query = {way: Cell("value", way, "blocks.1.resid_post", "query") for way in ("restore", "break")}
    assert answer.cells[query["restore"]].effects.accuracy.mean() == 1
    assert counterfactual.cells[query["restore"]].effects.accuracy.mean() == 0
    assert answer.cells[query["break"]].effects.accuracy.mean() == 0
    assert counterfactual.cells[query["break"]].effects.accuracy.mean() == 1
    assert counterfactual.corrupted["value"].accuracy.mean() == 1


def test_a_table_of_several_reads_says_of_each_row_where_it_was_read_and_is_judged_by_the_first():
    planted = RETRIEVERS[0]
    model = planted.build(planted.task, 0)
    settings = PairSettings(documents=32, slots=("value",), symbols="slot-class", avoid_present=True)
    both = interchange(model, make_pairs(planted.task, settings.changed(reads=READS), data_seed=0))
    alone = interchange(model, make_pairs(planted.task, settings, data_seed=0))
    table = EffectTable.from_bytes(effect_table(both, model).to_bytes())
    assert {row["read"] for row in table.rows()} == set(READS)
    one = EffectTable.from_bytes(effect_table(alone, model).to_bytes())
    for found, want in zip((row for row in table.rows() if row["read"] == "answer"), one.rows(), strict=True):
        # Several reads are computed in batches of another shape; runs that are equal bit by bit have no interval.
        for name in ("site", "slot", "role", "direction", "metric", "status", "reason", "n"):
            assert found[name] == want[name]
        assert found["value"] == pytest.approx(want["value"], rel=1e-3)
    assert verdict(both, model).sentence() == verdict(alone, model).sentence()


def test_reads_are_part_of_what_is_hashed_and_the_usual_read_leaves_hashes_as_they_were():
    assert PAIRS.sha256() == replace(PAIRS, asked=None).sha256()
    assert probing().sha256() != replace(probing(), asked=probing().reads.only(["pos:2"])).sha256()


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        (("pos:2",), "nothing is asked at 'pos:2' in 5 of 5 documents"),
        (("counterfactual:key",), "5 of 5 corrupted documents have no other answer to ask for"),
        (("counterfactual:divider",), "no slot that is corrupted named 'divider'"),
        (("nowhere",), "role"),
    ],
)
def test_reads_that_ask_for_nothing_are_refused_in_a_sentence(reads: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message):
        make_pairs(TASK, SETTINGS.changed(reads=reads), data_seed=0)


def test_what_measures_one_read_refuses_several():
    several = probing()
    for measure in (attribution_patching, lambda model, pairs: patch_paths(model, pairs, [])):
        with pytest.raises(UserError, match="one read, not pos:0, pos:1"):
            measure(make(), several)


def test_every_scored_position_can_be_read_by_one_word():
    pairs = make_pairs(TASK, SETTINGS.changed(reads=("scored",)), data_seed=0)
    assert pairs.reads.names == ("scored:0",)
    assert torch.equal(pairs.reads.positions, PAIRS.reads.positions)


SEVERAL = MQAR(num_pairs=3, num_queries=3, num_keys=6, num_values=6, length=14)


def test_every_question_of_a_task_that_asks_several_is_read_and_equals_the_slow_loop():
    settings = PairSettings(documents=5, slots=("value",), reads=("scored",))
    pairs = make_pairs(SEVERAL, settings, data_seed=0)
    assert pairs.reads.names == ("scored:0", "scored:1", "scored:2")
    assert torch.equal(pairs.reads.targets, pairs.original.scored()[1])
    spec = ModelSpec(architecture="mamba", width=8, layers=2, max_length=16, init="small_model")
    models = [build_model(spec, SEVERAL.vocab_size, seed).double() for seed in (0, 1)]
    plan = plan_grid(models[0], pairs, roles=["value", "query", "value&query"], slots=["value"])
    for model, grid in zip(models, interchange_cohort(models, pairs, plan, batch_documents=2), strict=True):
        for cell, measured in grid.cells.items():
            logits = slow(model, pairs, cell)[torch.arange(5)[:, None], pairs.reads.positions]
            want = Effects.of(logits, pairs.reads.targets)
            torch.testing.assert_close(measured.effects.likelihood, want.likelihood, rtol=1e-9, atol=1e-12)
        assert verdict(grid, model, "value").sentence()
    # What is changed is the value of the first question; the answers to the others stay.
    became = pairs.reads.others["value"] != pairs.reads.targets
    assert became.tolist() == [[True, False, False]] * 5


def test_the_usual_read_asks_one_thing_of_a_task_that_asks_several():
    assert make_pairs(SEVERAL, PairSettings(documents=5), data_seed=0).reads.names == ("answer",)
    with pytest.raises(UserError, match="exactly one scored position each; `single_query`"):
        make_pairs(SEVERAL, PairSettings(documents=5, reads=("scored", "answer")), data_seed=0)


class Sometimes(AR):
    """Asks at every token in every second document, and once in the others."""

    def single_query(self):
        return AR(**self.model_dump())

    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        targets = batch.targets.clone()
        targets[::2] = batch.tokens[::2]
        return replace(batch, targets=targets)

    def solve(self, batch):
        positions, targets = batch.scored()
        asked = batch.tokens.gather(1, positions)
        return asked.where(targets != UNSCORED, UNSCORED).scatter(1, (targets != UNSCORED).sum(1, keepdim=True) - 1, 3)


def test_documents_that_are_asked_at_unequally_many_positions_are_refused_as_one_and_read_where_all_are_asked():
    task = Sometimes(num_pairs=2, num_keys=4, num_values=4)
    with pytest.raises(UserError, match="not asked at equally many positions"):
        make_pairs(task, PairSettings(documents=4, reads=("scored",)), data_seed=0)
    with pytest.raises(UserError, match="nothing is asked at 'pos:0' in 2 of 4"):
        make_pairs(task, PairSettings(documents=4, reads=("pos:0",)), data_seed=0)
    assert make_pairs(task, PairSettings(documents=4, reads=("query",)), data_seed=0).reads.names == ("query",)


@pytest.mark.parametrize(
    ("position", "target", "message"),
    [
        (99, 3, "read 'x' lies outside the document in 5 of 5"),
        (-1, 3, "read 'x' lies outside the document in 5 of 5"),
        (2, UNSCORED, "nothing is asked at 'x' in 5 of 5"),
    ],
)
def test_reads_outside_of_the_documents_are_refused_before_anything_runs(position: int, target: int, message: str):
    reads = Reads(("x",), torch.full((5, 1), position), torch.full((5, 1), target))
    with pytest.raises(UserError, match=message):
        interchange(make(), replace(PAIRS, asked=reads))
    with pytest.raises(UserError, match="reads of 4 documents, and 5"):
        interchange(make(), replace(PAIRS, asked=reads.rows(slice(4))))


def test_no_reads_at_all_are_refused():
    with pytest.raises(UserError, match="name at least one read"):
        Reads((), torch.zeros(5, 0).long(), torch.zeros(5, 0).long())
    with pytest.raises(ValueError, match="name at least one, such as 'answer'"):
        SETTINGS.changed(reads=())

"""Judging is a function of the stored table and the rules: it needs no model, and it never crashes on odd numbers."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from mixerscope.analysis import Rules, hypotheses, judge
from mixerscope.artifacts import Verdict, Verdicts
from mixerscope.artifacts.effects import EffectTable
from mixerscope.artifacts.proof import Proof
from mixerscope.interventions import (
    Effects,
    Grid,
    PairSettings,
    effect_table,
    interchange,
    make_pairs,
    prove,
    prove_table,
    verdict,
    verdicts,
)
from mixerscope.interventions.plan import full_plan, plan_grid
from mixerscope.model import Model
from mixerscope.planted.models import (
    conv_recurrence,
    direct_retriever,
    induction_transformer,
    lagged_induction,
    split_induction,
    two_routes,
)
from mixerscope.planted.separate_ways import pointer
from mixerscope.planted.zoo import ALL, DOCUMENTS, TASK, Planted

SLOTS = ("key", "value")


def measured(model: Model, documents: int = DOCUMENTS, task=TASK, slots: tuple[str, ...] = SLOTS) -> Grid:
    return interchange(model, make_pairs(task, PairSettings(documents=documents, slots=slots, avoid_present=True), 0))


def put_to_the_proof(model: Model, grid: Grid | None = None) -> tuple[EffectTable, Proof]:
    grid = measured(model) if grid is None else grid
    table = effect_table(grid, model)
    return table, prove_table(table, grid, model)


@pytest.mark.parametrize("planted", ALL, ids=lambda planted: planted.name)
def test_stored_effects_and_proofs_are_judged_as_measured_ones(planted: Planted):
    model = planted.build(planted.task, 0)
    grid = measured(model, task=planted.task)
    table, proof = put_to_the_proof(model, grid)
    data, shown = table.to_bytes(), proof.to_bytes()
    found = judge(table, None, proof)
    assert judge(EffectTable.from_bytes(data), None, Proof.from_bytes(shown)).to_bytes() == found.to_bytes()
    assert (table.to_bytes(), proof.to_bytes()) == (data, shown), "judging changes nothing"
    assert found == verdicts(grid, model)
    for slot, verdict_ in found.by_slot.items():
        assert planted.accepts(slot, verdict_.mechanism), (slot, verdict_.sentence())


def test_verdicts_come_back_from_their_bytes():
    model = lagged_induction(TASK, 0, lag=3)
    table, proof = put_to_the_proof(model)
    found = judge(table, None, proof)
    again = Verdicts.from_bytes(found.to_bytes())
    assert again == found
    assert again["key"].sentence() == found["key"].sentence()
    assert [row["slot"] for row in again.rows()] == list(SLOTS)


def test_judging_needs_no_model(tmp_path):
    model = induction_transformer(TASK, 0)
    table, proof = put_to_the_proof(model)
    (tmp_path / "effects").write_bytes(table.to_bytes())
    (tmp_path / "proof").write_bytes(proof.to_bytes())
    code = (
        "import sys\n"
        "for room in ('model', 'mixers', 'tasks', 'training', 'interventions', 'sites'):\n"
        "    sys.modules[f'mixerscope.{room}'] = None\n"
        "from mixerscope.analysis import judge\n"
        "from mixerscope.artifacts.effects import EffectTable\n"
        "from mixerscope.artifacts.proof import Proof\n"
        "table = EffectTable.from_bytes(open('effects', 'rb').read())\n"
        "found = judge(table, None, Proof.from_bytes(open('proof', 'rb').read()))\n"
        "sys.stdout.buffer.write(found.to_bytes())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, capture_output=True)
    assert ran.stdout == judge(table, None, proof).to_bytes()


def with_likelihoods(grid: Grid, change) -> Grid:
    """The same answers and logit differences of a model that is less sure of itself."""

    def changed(effects: Effects) -> Effects:
        return replace(effects, likelihood=change(effects.likelihood))

    return replace(
        grid,
        original=changed(grid.original),
        corrupted={slot: changed(effects) for slot, effects in grid.corrupted.items()},
        against={slot: changed(effects) for slot, effects in grid.against.items()},
        cells={cell: replace(m, effects=changed(m.effects)) for cell, m in grid.cells.items()},
    )


@pytest.mark.parametrize("scale", [0.003, 0.05], ids=str)
def test_whether_there_is_a_gap_does_not_depend_on_calibration(scale: float):
    """Answers of which the model is hardly sure are answers; the published reading sees nothing under 0.01."""
    model = induction_transformer(TASK, 0)
    grid = with_likelihoods(measured(model), lambda likelihood: scale * likelihood)
    found = verdicts(grid, model)["key"]
    assert found.mechanism == "induction"
    assert found.gap is not None
    assert found.gap.value == pytest.approx(scale, rel=0.01)
    assert (found.published == "induction") == (scale > Rules().min_gap)


def test_a_gap_that_one_document_makes_is_no_crash():
    model = induction_transformer(TASK, 0)
    gaps = torch.tensor([0.8] + [0.03] * 15)
    grid = with_likelihoods(measured(model, documents=16), lambda likelihood: 0.1 + gaps * likelihood)
    for found in verdicts(grid, model):
        assert found.gap is not None
        assert found.gap.low > 0


@pytest.mark.parametrize(
    ("rules", "mechanism", "reason"),
    [
        ({}, "induction", ""),
        ({"min_documents": 65}, "undetermined", "64 documents are too few (needed: 65)"),
        ({"names": 0.99}, "undetermined", "induction (block 1) in 100%"),
        ({"follows": 0.9999}, "undetermined", "the answer follows in 1.00 [1.00, 1.00] only"),
        ({"robust": 0.99}, "undetermined", "documents like those of training, but on"),
    ],
    ids=str,
)
def test_a_table_can_be_judged_again_by_other_rules(rules: dict, mechanism: str, reason: str):
    table, proof = put_to_the_proof(lagged_induction(TASK, 0, lag=1))
    found = judge(table, Rules(**rules), proof)["key"]
    assert found.mechanism == mechanism
    assert reason in found.reason


def test_a_route_that_was_not_put_to_the_proof_is_called_so():
    model = induction_transformer(TASK, 0)
    table, _ = put_to_the_proof(model)
    found = judge(table)["key"]
    assert found.mechanism == "unproven: induction"
    assert "was not taken while the model was at hand" in found.reason
    another = prove(model, measured(model).pairs, "key")
    assert judge(table, None, another)["key"].mechanism == "unproven: induction"


def test_a_proof_refutes_what_every_single_station_says():
    """Effects of a model that does induction, the proof of one that retrieves directly."""
    table, _ = put_to_the_proof(induction_transformer(TASK, 0))
    routes = dict.fromkeys([("value",), *(path for slot, path in hypotheses(table) if slot == "key")])
    pairs = measured(direct_retriever(TASK, 0, block=0, layers=2)).pairs
    proof = prove(direct_retriever(TASK, 0, block=0, layers=2), pairs, "value")
    assert ("value",) in routes
    found = judge(table, None, proof)["key"]
    assert (found.mechanism, found.route) == ("undetermined", ())
    assert [test.name for test in found.tests if test.passed is False] == ["sufficient", "necessary", "takes the route"]
    assert found.found == {"neither": 1.0}


def judged_without(model: Model, left_out) -> Verdict:
    pairs = make_pairs(TASK, PairSettings(documents=DOCUMENTS, avoid_present=True), 0)
    plan = [cell for cell in full_plan(model, pairs) if not left_out(cell)]
    return verdict(interchange(model, pairs, plan), model)


def test_a_place_that_was_not_broken_is_no_carrier():
    model = lagged_induction(TASK, 0, lag=3)
    found = judged_without(model, lambda cell: cell.role == "key+3" and cell.direction == "break")
    assert found.mechanism == "undetermined"
    assert "at blocks.1.resid_pre no single place carries the information" in found.reason


def test_a_part_whose_cells_are_not_there_is_named_with_the_next_one():
    model = conv_recurrence(TASK, 0)
    whole = judged_without(model, lambda cell: False)
    assert [move.component for move in whole.moves] == ["short convolution", "recurrence"]
    for direction in ("break", "restore"):
        found = judged_without(model, lambda c, d=direction: c.site.endswith("conv_out") and c.direction == d)
        [move] = found.moves
        assert (move.component, move.source, move.target) == ("short convolution + recurrence", "key", "query")


def test_what_the_other_slots_do_must_be_known():
    """The grid of the key alone proposes a route; without cells of the value nobody knows where the two meet."""
    model = induction_transformer(TASK, 0, heads=2)
    pairs = make_pairs(TASK, PairSettings(documents=DOCUMENTS, avoid_present=True), 0)
    found = verdict(interchange(model, pairs, plan_grid(model, pairs)), model)
    assert found.mechanism == "undetermined"
    assert "the value in 0.00" in found.reason


@pytest.mark.parametrize("build", [pointer, induction_transformer])
def test_a_name_that_is_about_two_slots_is_not_given_for_one(build):
    """With the key alone corrupted a pointer is direct retrieval as far as anyone can see."""
    pairs = make_pairs(TASK, PairSettings(documents=DOCUMENTS, avoid_present=True), 0)
    alone = replace(pairs, corrupted={"key": pairs.corrupted["key"]}, task=None)
    model = build(TASK, 0)
    found = verdict(interchange(model, alone), model)
    assert found.mechanism.startswith("unproven: ")
    assert "the value was not corrupted" in found.reason


def test_documents_that_the_proof_does_not_count_take_no_route():
    """Two answers may tie, and runs in other batches then differ in which is said."""
    table, proof = put_to_the_proof(induction_transformer(TASK, 0))
    routes = [replace(one, gap=one.gap & (torch.arange(len(one.gap)) >= 16)) for one in proof.routes]
    found = judge(table, proof=replace(proof, routes=tuple(routes)))["key"]
    assert found.mechanism == "undetermined"
    assert found.found["neither"] == 16 / DOCUMENTS


def test_answers_that_stay_more_often_than_luck_leaves_them_are_no_luck():
    table, proof = put_to_the_proof(induction_transformer(TASK, 0))
    few, many = (torch.arange(DOCUMENTS) < DOCUMENTS * share for share in (0.25, 0.5))
    said: list[str] = []
    for stays in (few, many):
        unmoved = [replace(one, stays=stays, moved=torch.ones_like(one.moved)) for one in proof.unmoved]
        said.append(judge(table, proof=replace(proof, unmoved=tuple(unmoved)))["key"].mechanism)
    assert said == ["induction", "undetermined"], "guessing leaves a quarter"


def test_more_documents_make_a_mixture_clearer():
    for documents in (DOCUMENTS, 4 * DOCUMENTS):
        found = verdict(measured(two_routes(TASK, 0), documents), two_routes(TASK, 0))
        assert found.mechanism == "undetermined"


def test_the_sentence_carries_accuracy_guessing_gap_and_the_weakest_test():
    found = verdicts(measured(induction_transformer(TASK, 0)), induction_transformer(TASK, 0))["key"]
    said = found.sentence()
    assert said.startswith("induction (key → value → query); block 0 attention: key → value; ")
    assert "accuracy 100% (guessing " in said
    assert "; gap 1.00; weakest test: " in said
    assert found.weakest is not None
    assert found.weakest.passed


def test_the_published_reading_is_to_be_had_and_tests_nothing():
    """Two routes side by side: the reading names the role that restores most, our verdict refuses."""
    model = induction_transformer(TASK, 0)
    table, proof = put_to_the_proof(model)
    for found in (judge(table, "published"), judge(table, Rules.model_validate("published"), proof)):
        assert (found["key"].mechanism, found["key"].route) == ("induction", ("key", "value", "query"))
        assert found["key"].tests == ()
    mixed = split_induction(TASK, 0)
    grid = measured(mixed)
    assert verdicts(grid, mixed, "published")["key"].mechanism in ("induction", "association one step later")
    assert verdicts(grid, mixed)["key"].mechanism == "undetermined"
    unsure = with_likelihoods(measured(model), lambda likelihood: 0.005 * likelihood)
    none = verdicts(unsure, model, "published")["key"]
    assert (none.mechanism, none.route) == ("undetermined", ())
    with pytest.raises(ValueError, match="reading"):
        judge(table, "publisht")  # pyright: ignore[reportArgumentType]

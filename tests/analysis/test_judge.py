"""Judging is a function of the stored table and the rules: it needs no model, and it never crashes on odd numbers."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from mixerscope.analysis import Rules, judge
from mixerscope.artifacts import Verdict, Verdicts
from mixerscope.artifacts.effects import SHARE, EffectTable
from mixerscope.interventions import Cell, Effects, Grid, PairSettings, effect_table, interchange, make_pairs, verdict
from mixerscope.interventions.plan import full_plan, plan_grid
from mixerscope.model import Model
from mixerscope.planted.models import conv_recurrence, induction_transformer, lagged_induction
from mixerscope.planted.zoo import ALL, DOCUMENTS, TASK, Planted

SLOTS = ("key", "value")


def measured(model: Model, documents: int = DOCUMENTS, task=TASK, slots: tuple[str, ...] = SLOTS) -> Grid:
    return interchange(model, make_pairs(task, PairSettings(documents=documents, slots=slots, avoid_present=True), 0))


@pytest.mark.parametrize("planted", ALL, ids=lambda planted: planted.name)
def test_stored_effects_are_judged_as_measured_ones(planted: Planted):
    model = planted.build(planted.task, 0)
    grid = measured(model, task=planted.task)
    table = effect_table(grid, model)
    data = table.to_bytes()
    found = judge(table)
    assert judge(EffectTable.from_bytes(data)).to_bytes() == found.to_bytes()
    assert table.to_bytes() == data, "judging changes nothing"
    assert tuple(found) == tuple(verdict(grid, model, slot) for slot in SLOTS)
    assert {slot: v.mechanism for slot, v in found.by_slot.items()} == {s: planted.expected(s) for s in SLOTS}


def test_verdicts_come_back_from_their_bytes():
    model = lagged_induction(TASK, 0, lag=3)
    found = judge(effect_table(measured(model), model))
    again = Verdicts.from_bytes(found.to_bytes())
    assert again == found
    assert again["key"].sentence() == found["key"].sentence()
    assert [row["slot"] for row in again.rows()] == list(SLOTS)


def test_judging_needs_no_model(tmp_path):
    model = induction_transformer(TASK, 0)
    table = effect_table(measured(model), model)
    (tmp_path / "effects").write_bytes(table.to_bytes())
    code = (
        "import sys\n"
        "for room in ('model', 'mixers', 'tasks', 'training', 'interventions', 'sites'):\n"
        "    sys.modules[f'mixerscope.{room}'] = None\n"
        "from mixerscope.analysis import judge\n"
        "from mixerscope.artifacts.effects import EffectTable\n"
        "found = judge(EffectTable.from_bytes(open('effects', 'rb').read()))\n"
        "sys.stdout.buffer.write(found.to_bytes())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, capture_output=True)
    assert ran.stdout == judge(table).to_bytes()


def spread(grid: Grid, gaps: list[float], floor: float = 0.1) -> Grid:
    """The same effects of a model whose gap is this in each document: planted likelihoods are nothing or all."""
    size = torch.tensor(gaps)

    def scaled(effects: Effects) -> Effects:
        return replace(effects, likelihood=floor + size * effects.likelihood)

    return replace(
        grid,
        original=scaled(grid.original),
        corrupted={slot: scaled(effects) for slot, effects in grid.corrupted.items()},
        cells={cell: replace(m, effects=scaled(m.effects)) for cell, m in grid.cells.items()},
    )


def test_a_gap_that_one_document_makes_has_a_verdict_with_a_reason():
    model = induction_transformer(TASK, 0)
    grid = measured(model, documents=16)
    for found in judge(effect_table(spread(grid, [0.8] + [0.03] * 15), model)):
        assert found.gap is not None
        assert found.gap.low > Rules().min_gap, "else it would not count as read, which is another matter"
        assert (found.mechanism, found.route, found.boundaries) == ("undetermined", (), ())
        assert "the gap varies too much between the documents" in found.reason
    [even, _] = judge(effect_table(spread(grid, [0.08] * 16), model))
    assert even.mechanism == "induction"


def test_a_share_has_the_interval_that_the_table_has():
    """Rounded to half precision, two runs that differ look like one, and a run that was not sampled has no interval."""
    model = induction_transformer(TASK, 0)
    grid = measured(model)
    nearly = replace(grid.original, likelihood=torch.full((DOCUMENTS,), 0.99985))
    cell = Cell("key", "restore", "blocks.1.resid_pre", "value")
    cells = {**grid.cells, cell: replace(grid.cells[cell], effects=nearly)}
    original = replace(nearly, likelihood=torch.full((DOCUMENTS,), 0.9999))
    table = effect_table(replace(grid, original=original, cells=cells), model)
    assert torch.equal(table.likelihood(cell), table.likelihood("original"))
    at = judge(table)["key"].boundaries[1]
    assert at.carrier == "value"
    assert at.share == table.estimate(cell, SHARE)
    assert at.share.low < 0.96


@pytest.mark.parametrize(
    ("rules", "mechanism", "reason"),
    [
        ({}, "induction", ""),
        ({"min_documents": 65}, "undetermined", "64 documents are too few (needed: 65)"),
        ({"min_gap": 0.9999}, "not retrieval", "above 0.9999)"),
        ({"min_gap": 0.9999, "solves": 0.99}, "not learned", "above 0.9999)"),
        ({"carries": 0.99999}, "undetermined", "no role alone carries the information"),
    ],
)
def test_a_table_can_be_judged_again_by_other_rules(rules: dict, mechanism: str, reason: str):
    model = induction_transformer(TASK, 0)
    grid = spread(measured(model, slots=("key",)), [0.9] * DOCUMENTS)
    grid = replace(grid, cells={cell: replace(m, effects=dimmed(m.effects)) for cell, m in grid.cells.items()})
    found = judge(effect_table(grid, model), Rules(**rules))["key"]
    assert found.mechanism == mechanism
    assert reason in found.reason


def dimmed(effects: Effects) -> Effects:
    """No edit brings back or takes everything."""
    return replace(effects, likelihood=effects.likelihood * 0.9 + 0.05)


def judged_without(model: Model, left_out) -> Verdict:
    pairs = make_pairs(TASK, PairSettings(documents=DOCUMENTS, avoid_present=True), 0)
    plan = [cell for cell in full_plan(model, pairs) if not left_out(cell)]
    return verdict(interchange(model, pairs, plan), model)


def test_a_place_that_was_not_broken_is_no_carrier():
    model = lagged_induction(TASK, 0, lag=3)
    found = judged_without(model, lambda cell: cell.role == "key+3" and cell.direction == "break")
    assert found.mechanism == "undetermined"
    assert "restoring the key+3 brings back 1.00, what breaking it takes is not known" in found.reason


def test_a_part_whose_cells_are_not_there_is_named_with_the_next_one():
    model = conv_recurrence(TASK, 0)
    whole = judged_without(model, lambda cell: False)
    assert [move.component for move in whole.moves] == ["short convolution", "recurrence"]
    for direction in ("break", "restore"):
        found = judged_without(model, lambda c, d=direction: c.site.endswith("conv_out") and c.direction == d)
        [move] = found.moves
        assert (move.component, move.source, move.target) == ("short convolution + recurrence", "key", "query")


def test_the_grid_alone_is_enough_where_roles_carry():
    model = induction_transformer(TASK, 0, heads=2)
    pairs = make_pairs(TASK, PairSettings(documents=DOCUMENTS, avoid_present=True), 0)
    found = verdict(interchange(model, pairs, plan_grid(model, pairs)), model)
    assert found.mechanism == "induction"
    # Which head it is only cells of single heads can tell.
    assert [move.component for move in found.moves] == ["attention", "attention"]

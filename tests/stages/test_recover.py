"""Recovering answers: by construction where the head alone follows, by what is known where it was planted."""

import pytest
import torch

from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.errors import UserError
from mixerscope.interventions.recovery import change_inputs, without_taps
from mixerscope.planted.automata import EVERY_STATE
from mixerscope.spec import RunSpec
from mixerscope.stages import Done, Impossible
from mixerscope.stages.recover import _cells
from mixerscope.tasks import Dyck, GroupWord, Parity
from tests.stages.states import fresh, run_stage, spec_of

RNG = torch.Generator


@pytest.mark.parametrize("task", [Parity(length=8), Dyck(length=8), GroupWord(length=8), Dyck(after_close=True)])
def test_one_input_differs_and_the_answers_are_the_automatons(task):
    at = task.length // 2
    pairs = change_inputs(task, 40, at, RNG().manual_seed(0))
    assert ((pairs.changed != pairs.clean.tokens).sum(1) == 1).all()
    assert (pairs.changed[:, at] != pairs.clean.tokens[:, at]).all()
    inputs = task.inputs_of(pairs.changed)
    assert task.automaton.possible(inputs).all()
    assert torch.equal(task.answer_tokens(task.automaton.run(inputs)), pairs.answers)
    assert pairs.differs[:, at + 1 :].any(1).all()
    assert not pairs.differs[:, :at].any()


def planted(name, task):
    known = next(one for one in EVERY_STATE if one.name == name)
    model = known.build(task, 0)
    return model, RunSpec(task=task, model=model.spec, stages={"recover": {"pairs": 32}})


def test_behind_the_last_block_the_same_position_comes_back_by_construction_and_no_later_one():
    model, spec = planted(EVERY_STATE[0].name, Parity(length=8))
    [result] = run_stage("recover", spec, [model])
    [found] = result.artifacts
    assert isinstance(found, Recoveries)
    assert Recoveries.from_bytes(found.to_bytes()) == found
    last = model.boundaries()[-1]
    for position in range(found.position, 9):
        cell = found.cell(last, position)
        assert cell.same == pytest.approx(1, abs=1e-3)
        assert cell.same_low <= cell.same <= cell.same_high
        assert cell.later == (None if position == 8 else pytest.approx(0, abs=1e-3))
    first = found.cell(model.boundaries()[0], found.position)
    assert first.same == pytest.approx(1, abs=1e-3)
    assert first.later == pytest.approx(1, abs=1e-3), "the input itself is all that differs"
    assert found.cell(model.boundaries()[0], found.position + 1).later == pytest.approx(0, abs=1e-3)
    assert found.without_taps == ()


def test_a_convolution_that_looks_back_is_missed_and_one_that_does_not_is_not():
    spec = spec_of({"recover": {"pairs": 16}}, Parity(length=8), "mamba", width=8)
    model = fresh(spec)
    tokens = spec.task.sample(4, RNG().manual_seed(0)).tokens
    plain = model(tokens)
    with without_taps(model, 0):
        assert not torch.equal(model(tokens), plain)
    assert torch.equal(model(tokens), plain), "only inside"
    with torch.no_grad():
        model.blocks[0].mixer.conv.weight[:, :-1] = 0
    short_sighted = model(tokens)
    with without_taps(model, 0):
        torch.testing.assert_close(model(tokens), short_sighted)
    [result] = run_stage("recover", spec, [fresh(spec)])
    [found] = result.artifacts
    assert [one.block for one in found.without_taps] == [0]
    assert found.without_taps[0].damage is None, "a model that knows nothing has nothing to lose"
    assert {cell.site for cell in found.cells if cell.position is None} == {"blocks.0.mixer.conv_out"}


def test_several_models_are_measured_as_one_is_and_a_broken_one_costs_nothing():
    spec = spec_of({"recover": {"pairs": 16}}, Parity(length=8), "mamba", width=8)
    models = [fresh(spec, seed) for seed in range(3)]
    with torch.no_grad():
        models[1].blocks[0].norm1.weight.fill_(float("nan"))
    found = run_stage("recover", spec, models)
    assert isinstance(found[1], Impossible)
    [alone] = run_stage("recover", spec, [models[2]])
    assert isinstance(found[2], Done)
    one, other = found[2].artifacts[0], alone.artifacts[0]
    assert one.gap == pytest.approx(other.gap, abs=1e-4)
    assert one.without_taps == other.without_taps


def test_shares_are_of_all_answers_together_and_have_intervals_over_documents():
    rng = RNG().manual_seed(0)
    differs = torch.rand(40, 6, generator=rng) < 0.6
    clean, changed = (torch.randn(40, 6, generator=rng, dtype=torch.float64) + sign for sign in (2, -2))
    part = torch.rand(40, 1, generator=rng, dtype=torch.float64)
    edited = torch.stack([clean, changed, changed + part * (clean - changed)])
    cells = _cells([("a", 1), ("b", 1), ("c", 1)], torch.stack([clean, changed]), edited, differs, 0)
    assert [cell.same for cell in cells[:2]] == [cell.later for cell in cells[:2]] == [1, 0]
    here = differs[:, 2:]
    back, gap = (x[:, 2:][here].sum() for x in (edited[2] - changed, clean - changed))
    assert cells[2].later == pytest.approx((back / gap).item(), abs=1e-5)
    assert 0.05 < cells[2].later_high - cells[2].later_low < 0.5
    assert cells[2].later_low < part.mean() < cells[2].later_high
    assert cells[0].later_low == cells[0].later_high == 1, "nothing was sampled"
    nothing = _cells([("a", 1)], torch.stack([changed, changed]), edited[:1], differs, 0)
    assert nothing[0].same is nothing[0].later is nothing[0].later_low is None, "no difference to bring back"


def test_where_no_answer_would_be_another_one_it_says_so_and_other_stages_go_on():
    spec = spec_of({"recover": {}}, Dyck(length=8, ask="next"))
    [result] = run_stage("recover", spec, [fresh(spec)])
    assert isinstance(result, Impossible)
    assert "no answer of this task would be another one" in result.reason


def test_a_position_without_inputs_behind_it_is_refused():
    spec = spec_of({"recover": {"position": 8}})
    with pytest.raises(UserError, match="leaves no inputs behind it"):
        spec.stages["recover"].check(spec)


def test_too_few_documents_are_refused_before_training():
    spec = spec_of({"recover": {"pairs": 1}})
    with pytest.raises(UserError, match=r"in 1 of 1 documents, and two is the least; .* or more pairs"):
        spec.stages["recover"].draw(spec)

"""Another state in the middle: pairs that can go on, shares by hand, and cohorts like single models."""

import pytest
import torch

from mixerscope.errors import UserError
from mixerscope.interventions.members import Members
from mixerscope.interventions.states import read_states, run_changing_states
from mixerscope.interventions.transplant import answers_after, columns, held_states
from mixerscope.planted.automata import EVERY_STATE
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.state_pairs import draw_pairs, other_place
from mixerscope.tasks import Dyck, GroupWord, Parity
from tests.stages.states import answers, fresh, run_stage, spec_of

SMALL = {"interchange": {"documents": 120, "pairs": 16}}


@pytest.mark.parametrize("task", [Parity(length=8), GroupWord(length=8), Dyck(length=12)])
def test_pairs_are_in_different_states_and_can_go_on(task):
    every = torch.ones(task.automaton.num_states, dtype=torch.bool)
    at = task.length // 2
    pairs = draw_pairs(task, 40, at, every, stream(0, "test"))
    own, theirs = (task.states(batch)["state"][:, at] for batch in (pairs.base, pairs.source))
    assert torch.equal(own, pairs.states[0])
    assert torch.equal(theirs, pairs.states[1])
    assert (own != theirs).all()
    # The base's later inputs behind the source's earlier ones are a document whose answers are those that must follow.
    spliced = torch.cat([pairs.source.tokens[:, : at + 1], pairs.base.tokens[:, at + 1 :]], 1)
    states = task.automaton.run(task.inputs_of(spliced))
    asked = pairs.base.targets != -100
    later = asked & (torch.arange(spliced.shape[1]) >= at)
    assert torch.equal(task.answer_tokens(states)[later], pairs.follows[later])
    assert task.automaton.possible(task.inputs_of(spliced)).all()
    assert not (pairs.differs & ~later).any()


@pytest.mark.parametrize("architecture", ["gru", "mamba", "attention"])
def test_nothing_added_changes_nothing_and_all_states_swapped_splice_two_documents(architecture):
    spec = spec_of(SMALL, Parity(length=8), architecture, layers=2)
    model = fresh(spec)
    members, task = Members([model]), spec.task
    base, source = (task.sample(12, stream(seed, "test")) for seed in (0, 1))
    assert torch.equal(answers_after(members, base, 4)[0], answers(model, base.tokens))
    here, there = columns(members, base, 4), columns(members, source, 4)
    assert torch.equal(answers_after(members, base, 4, here)[0], answers(model, base.tokens))
    said = answers_after(members, base, 4, there)[0]
    spliced = torch.cat([source.tokens[:, :5], base.tokens[:, 5:]], 1)
    if architecture == "attention":
        assert held_states(model) == []
    else:
        assert torch.equal(said[:, 4:], answers(model, spliced)[:, 4:])
    assert torch.equal(said[:, :4], answers(model, base.tokens)[:, :4])


def test_states_can_be_changed_at_every_step():
    model = fresh(spec_of(SMALL, Parity(length=8), "gru"))
    mixer = model.layers()[0].mixer
    x = torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(run_changing_states(mixer, x, lambda at, state: state), mixer(x))
        forgetful = run_changing_states(mixer, x, lambda at, state: torch.zeros_like(state))
        alone = torch.cat([mixer(x[:, [at]]) for at in range(6)], 1)
        torch.testing.assert_close(forgetful, alone)
        assert read_states(mixer, x).shape == (3, 6, 16)


def test_a_cohort_is_measured_as_its_members_are():
    spec = spec_of(SMALL, GroupWord(length=8), "mamba", layers=2)
    models = [fresh(spec, seed) for seed in (0, 1)]
    together = [result.artifacts[0] for result in run_stage("interchange", spec, models)]
    alone = [run_stage("interchange", spec, [model])[0].artifacts[0] for model in models]
    for one, other in zip(together, alone, strict=True):
        assert [cell.place for cell in one.cells] == [cell.place for cell in other.cells]
        for a, b in zip(one.cells, other.cells, strict=True):
            assert a.later.value == pytest.approx(b.later.value, abs=0.05)
        assert {cell.how for cell in one.cells} == {"shift", "moved", "swap"}
        assert list(one.rows())
        assert len(list(one.summary())) == len(one.cells)


def test_the_share_that_follows_is_counted_by_hand():
    planted, task = EVERY_STATE[0], Parity(length=8)
    model = planted.build(task, 0)
    spec = RunSpec(task=task, model=model.spec, stages=SMALL)
    [result] = run_stage("interchange", spec, [model])
    found = result.artifacts[0]
    assert found.accuracy == 1.0
    assert found.cell("both", "shift").later.value == 1.0
    assert found.cell("both", "shift").kept == 0.0
    assert found.cell("stream", "shift").later.value == 0.0
    assert found.cell("stream", "shift").kept == 1.0
    assert found.cell("stream", "shift").by_distance == (1.0, 0.0, 0.0, 0.0, 0.0)


def test_a_position_without_inputs_behind_it_is_refused():
    spec = spec_of({"interchange": {"position": 8}})
    with pytest.raises(UserError, match="position = 8 leaves no inputs"):
        spec.stages["interchange"].check(spec)


def test_documents_in_which_what_is_held_still_grows_are_refused_before_training():
    for stage, length in (("interchange", 8), ("align", 16)):
        spec = spec_of({stage: {}}, Parity(length=length), "mamba", options={"d_conv": 8})
        with pytest.raises(UserError, match=r"blocks.0.mixer.state holds .* make documents longer"):
            spec.stages[stage].check(spec)
        usual = spec_of({stage: {}}, Parity(length=length), "mamba")
        usual.stages[stage].check(usual)


def test_no_state_is_written_where_a_short_convolution_has_too_few_inputs():
    states = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0]]).repeat(20, 1)
    with pytest.raises(UserError, match="no two states are met 8 times around input 2"):
        other_place(states, 2, 2)

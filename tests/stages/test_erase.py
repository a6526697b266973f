"""Erasing states: nothing erased changes nothing, what the head reads erased leaves guessing, idle copies are idle."""

import pytest
import torch

from mixerscope.artifacts import Erasures
from mixerscope.errors import UserError
from mixerscope.interventions.members import Members
from mixerscope.interventions.states import held_places, run_changing_states
from mixerscope.interventions.tagging import right_answers, right_with_each, run_on
from mixerscope.planted.automata import EVERY_STATE
from mixerscope.probing.erasure import Eraser
from mixerscope.sites import edit
from mixerscope.spec import RunSpec
from mixerscope.stages import Done, Impossible
from mixerscope.stages.counting import without
from mixerscope.stages.erase_recurrence import METHOD, Inside, _without
from mixerscope.tasks import GroupWord, Parity
from tests.stages.states import fresh, run_stage, spec_of

SMALL = {"documents": 120, "damaged_documents": 64, "draws": 4, "times": [1, 2]}


def telling(spec, seed=0):
    """A model of one block that writes two things into its stream: the answer, which the head reads, and what the state
    is modulo three, which it does not."""
    model, task, width = fresh(spec, seed), spec.task, spec.model.width
    rng = torch.Generator().manual_seed(seed)
    # Orthogonal to the vector of ones, which the last norm takes off.
    free = torch.linalg.svd(torch.ones(1, width)).Vh[1:]
    axes = torch.linalg.qr(torch.randn(width - 1, 4, generator=rng)).Q.T @ free
    with torch.no_grad():
        model.token_embedding.weight.zero_()
        for state in range(2):
            model.token_embedding.weight[task.answer_tokens(torch.tensor(state))] = (2 * state - 1) * axes[0]
    block, embed = model.blocks[0], model.embed_tokens

    def remember(tokens):
        states = task.automaton.run(task.inputs_of(tokens))
        noise = 0.1 * torch.randn(*tokens.shape, width, generator=rng)
        block.given = 3 * (2.0 * (states % 2) - 1)[..., None] * axes[0] + 3 * axes[1:][states % 3] + noise
        return embed(tokens)

    model.embed_tokens = remember

    def forward(x):
        x = block.resid_pre(x)
        return block.finish(block.add(x, block.mix(x)) * 0 + block.given)

    block.forward = forward
    block.mlp = None
    del block.mlp_out
    return model


def found_of(model, spec):
    [result] = run_stage("erase", spec, [model])
    [found] = result.artifacts
    assert isinstance(found, Erasures)
    assert Erasures.from_bytes(found.to_bytes()) == found
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("label", "used"), [("mod2", True), ("mod3", False)])
def test_used_and_unused_directions_are_told_apart(label, used, seed):
    """Both can be read of the same vectors, so that taking more than what is asked for would hurt either way."""
    settings = {**SMALL, "draws": 0, "turns": 0, "times": [1], "documents": 200, "label": label}
    spec = spec_of({"erase": settings}, GroupWord(group="Z6", ask="mod2", length=8), "gru", width=12)
    found = found_of(telling(spec, seed), spec)
    assert found.clean == (1.0,)
    last = {one.method: one for one in found.erased if one.site == "blocks.0.resid_post"}
    one = last["leace"]
    assert one.before > 0.95
    assert one.residual < found.chance + 0.1
    assert one.damage[0] == pytest.approx(float(used), abs=0.1), "all of it where it is used, nothing elsewhere"
    assert one.damage_low[0] <= one.damage[0] <= one.damage_high[0]
    assert one.damage_high[0] - one.damage_low[0] < 0.5
    assert last["head"].damage[0] == pytest.approx(1.0, abs=0.1), "without what the head reads guessing is left"


def test_erasing_nothing_changes_no_bit():
    spec = spec_of({"erase": SMALL}, Parity(length=8), "gru", width=8)
    members = Members([fresh(spec, seed) for seed in (0, 1)])
    batch = spec.task.sample(20, torch.Generator().manual_seed(0))
    mean = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(1))
    nothing = Eraser(mean, torch.zeros(2, 8, 8), torch.zeros(2))

    def program(model, tokens, targets, *own):
        taps = {"blocks.0.resid_post": lambda x: without(x[None], *own)[0]} if own else {}
        with edit(model, taps):
            return model(tokens)

    plain = run_on(members, batch, program)
    # As one edit of several.
    assert torch.equal(plain, run_on(members, batch, program, nothing.matrix[:, None], nothing.mean[:, None]))
    right = right_answers(members, batch)
    assert right.shape == (2, 20, 9)
    each = nothing.matrix[:, None].expand(-1, 3, -1, -1), mean[:, None].expand(-1, 3, -1, -1)
    counted = right_with_each(members, batch, "blocks.0.resid_post", without, *each)
    assert torch.equal(counted, right[:, None].expand(-1, 3, -1, -1))


def test_erasing_nothing_inside_a_recurrence_changes_no_bit():
    """Beside the same steps without an edit; the cell's own pass adds up in another order."""
    spec = spec_of({}, Parity(length=8), "gru", width=8, layers=2)
    members = Members([fresh(spec, seed) for seed in (0, 1)])
    batch = spec.task.sample(20, torch.Generator().manual_seed(0))
    mean = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
    x = torch.randn(20, 9, 8, generator=torch.Generator().manual_seed(2))
    mixer, nothing = members.first.layers()[0].mixer, torch.zeros(8, 3)
    with torch.no_grad():
        plain = run_changing_states(mixer, x, lambda at, state: state)
        every = torch.arange(8)
        again = run_changing_states(mixer, x, lambda at, state: _without(state, mean[0], nothing, every))
        assert torch.equal(again, plain)
    right = Inside(0, mean, torch.zeros(2, 8, 3)).right(members, batch)
    assert torch.equal(right, right_answers(members, batch))


def test_what_the_first_states_do_not_hold_yet_is_not_erased_there():
    """A short convolution keeps its three latest inputs; after the first one there is one, which will be the newest."""
    members = Members([fresh(spec_of({}, Parity(length=8), "mamba", width=8, layers=2), 0)])
    mixer = members.first.layers()[0].mixer
    x = torch.randn(5, 9, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        sizes = [mixer.state_size(at + 1) for at in range(9)]
        places = held_places(mixer, x, sizes[-1])
        assert [len(one) for one in places] == sizes
        assert sizes[0] < sizes[1] < sizes[2] == sizes[3]
        window = sizes[-1] - mixer.a_log.numel()
        assert torch.equal(places[0][mixer.a_log.numel() :], torch.arange(sizes[-1] - window // 3, sizes[-1]))
        assert all(torch.equal(one, torch.arange(sizes[-1])) for one in places[2:])
        basis = torch.eye(sizes[-1])
        plain = run_changing_states(mixer, x, lambda at, state: state)
        for row, same in ((0, True), (1, True), (2, False)):
            own = basis[:, sizes[-1] - window + row * (window // 3) :][:, : window // 3]

            def change(at, state, own=own):
                return _without(state, torch.zeros(sizes[-1]), own, places[at]) if at == 0 else state

            assert torch.equal(run_changing_states(mixer, x, change), plain) == same, row


def test_what_is_left_is_looked_for_in_documents_that_no_erasure_was_fitted_to():
    task = Parity(length=8)
    model = EVERY_STATE[0].build(task, 0)
    found = found_of(model, RunSpec(task=task, model=model.spec, stages={"erase": {**SMALL, "documents": 200}}))
    whole = [one for one in (*found.erased, *found.once, *found.refitted) if one.method in ("leace", "class means")]
    assert whole
    assert all(one.unseen is not None and 0 <= one.unseen <= 1 for one in whole)
    for one in found.erased:
        if one.method == "leace":
            assert one.residual == 0.5, "by construction"
    assert len({one.unseen for one in found.erased if one.method == "leace"}) > 1, "which this is not"
    single = [one for one in found.erased if one.method == "single direction" and one.residual > 0.9]
    assert single
    assert all(one.unseen > 0.9 for one in single), "what was not erased is still read there"


def test_boundaries_can_be_read_in_more_documents_than_memories():
    task = Parity(length=8)
    model = EVERY_STATE[0].build(task, 0)

    def found_with(**more):
        asked = {**SMALL, "documents": 200, **more}
        return found_of(model, RunSpec(task=task, model=model.spec, stages={"erase": asked}))

    usual, more = found_with(), found_with(stream_documents=400)
    assert found_with(stream_documents=200) == usual
    assert more.judged > usual.judged
    assert more.once == usual.once, "at one position as before"

    def inside(found):
        return [one for one in found.erased if one.method.endswith("every step")]

    assert inside(more) == inside(usual) != []
    for all_of_them in ("erased", "refitted"):
        ours, theirs = ([one for one in getattr(f, all_of_them) if one.method == "leace"] for f in (usual, more))
        assert ours != theirs


def test_a_model_that_knows_nothing_has_nothing_to_lose():
    spec = spec_of({"erase": SMALL}, Parity(length=8), "gru", width=8)
    found = found_of(fresh(spec), spec)
    assert all(damage is None for one in found.erased for damage in (*one.damage, *one.damage_low, *one.damage_high))
    assert {one.method for one in found.erased} == {
        *("single direction", "leace", "iterated projection", "irrelevant label", "head", METHOD),
        "irrelevant label, every step",
    }
    assert not any(found.speaks(one) for one in found.erased if one.residual > found.chance + 0.02)
    assert {one.edit for one in found.ablated} == {"zero", "mean", "resample"}
    assert {one.site for one in found.ablated} == {"blocks.0.mixer_out", "blocks.0.mlp_out", "blocks.0.resid_post"}
    leace = next(one for one in found.erased if one.method == "leace")
    assert len(leace.random_rank) == len(leace.random_variance) == SMALL["draws"]
    assert 0 <= leace.percentile <= 1
    assert leace.random_longer == ((),), "of longer documents it knows nothing either"
    assert not found.refitted
    assert all(len(one.turned) == 5 and 0 <= one.percentile <= 1 for one in found.ablated)
    assert found.tolerance == 0.02
    assert found.judged == pytest.approx(0.2 * 4 * SMALL["documents"], abs=8)


def test_several_edits_at_once_are_each_of_them_alone():
    spec = spec_of({}, Parity(length=8), "gru", width=8)
    members = Members([fresh(spec, seed) for seed in (0, 1)])
    batch = spec.task.sample(70, torch.Generator().manual_seed(0))
    scale = 1 + torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    together = right_with_each(members, batch, "blocks.0.mixer_out", lambda x, by: x * by[:, None, None], scale)
    for number in range(5):
        alone = right_answers(members, batch, {"blocks.0.mixer_out": lambda x, by: x * by}, scale[:, number])
        assert torch.equal(together[:, number], alone)


@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        # The stream at one position is read there and nowhere else, but by a scan, whose blocks read earlier positions.
        ("recurrence", "blocks.1.resid_pre", (1.0, 0.0)),
        ("recomputation", "blocks.1.resid_pre", (1.0, 0.0)),
        ("scan", "blocks.2.resid_pre", (1.0, 0.18)),
        # A state that is gone after one step is missed by all that follow, and was read before it went.
        ("recurrence", "blocks.0.mixer.state", (0.0, 1.0)),
        ("recomputation beside an idle recurrence", "blocks.0.mixer.state", (0.0, 0.0)),
    ],
)
def test_erased_once_the_answer_there_and_later_ones_miss_what_they_read(name, place, expected):
    task = Parity(length=8)
    model = next(one for one in EVERY_STATE if one.name == name).build(task, 0)
    settings = {"erase": {**SMALL, "documents": 240, "times": [1], "turns": 0, "refit": False}}
    found = found_of(model, RunSpec(task=task, model=model.spec, stages=settings))
    assert found.position == 4
    one = next(one for one in found.once if one.site == place and one.method in ("leace", "class means"))
    assert one.before > 0.95
    assert one.damage_now == pytest.approx(expected[0], abs=0.15)
    # A state between two states may be taken for the wrong one more often than not.
    assert min(one.damage_later, 1.0) == pytest.approx(expected[1], abs=0.15)
    drawn = SMALL["draws"] if one.method == "leace" else 0
    assert len(one.random_now) == len(one.random_later) == drawn


def test_erasures_are_found_again_in_longer_documents_where_the_model_knows_them():
    task = Parity(length=8)
    model = EVERY_STATE[0].build(task, 0)
    found = found_of(model, RunSpec(task=task, model=model.spec, stages={"erase": SMALL}))
    assert found.clean == (1.0, 1.0)
    assert {one.length for one in found.refitted} == {16}
    assert {one.method for one in found.refitted} == {"leace", "iterated projection"}
    for one in found.refitted:
        if one.before == 1.0:
            assert one.cosines[0] == pytest.approx(1, abs=0.05), "a recurrence has one code for all positions"
        if one.method == "leace":
            assert one.damage == pytest.approx(1, abs=0.1)
    for one in found.erased:
        if one.method in ("leace", "iterated projection"):
            assert len(one.random_longer[0]) == SMALL["draws"]


@pytest.mark.parametrize("stage", ["probes", "erase"])
def test_a_model_that_went_astray_costs_the_others_nothing(stage):
    settings = {"probes": {"documents": 100}, "erase": {**SMALL, "draws": 0}}
    spec = spec_of({stage: settings[stage]}, Parity(length=8), "gru", width=8)
    well, astray = fresh(spec, 0), fresh(spec, 1)
    with torch.no_grad():
        astray.blocks[0].norm1.weight.fill_(float("nan"))
    found = run_stage(stage, spec, [well, astray, well])
    assert isinstance(found[1], Impossible)
    assert "not finite" in found[1].reason
    assert isinstance(found[0], Done)
    assert isinstance(found[2], Done)
    assert found[0].artifacts[0].to_bytes() == found[2].artifacts[0].to_bytes()


def test_unknown_labels_are_refused():
    spec = spec_of({"erase": {"label": "depth"}})
    with pytest.raises(UserError, match="no label of Parity named 'depth'"):
        spec.stages["erase"].check(spec)


def test_documents_with_more_positions_than_are_learned_are_refused_before_training():
    spec = spec_of({"erase": {"times": [1, 200]}})
    with pytest.raises(
        UserError, match=r"1601 tokens, and the model learns positions for 1024; .*stages\.erase\.times"
    ):
        spec.stages["erase"].check(spec)


@pytest.mark.parametrize("times", [[], [2], [2, 1], [1, 2, 2]])
def test_the_training_length_comes_first(times):
    with pytest.raises(ValueError, match="give 1, the training length"):
        spec_of({"erase": {"times": times}})


def test_a_state_erased_at_every_step_is_lost_where_it_is_carried():
    task = Parity(length=8)
    settings = {"erase": {**SMALL, "draws": 0, "times": [1]}}
    for planted in EVERY_STATE[:1]:
        model = planted.build(task, 0)
        spec = RunSpec(task=task, model=model.spec, stages=settings)
        found = found_of(model, spec)
        inside = {one.site: one for one in found.erased if one.method == METHOD}
        carried = inside["blocks.0.mixer.state"]
        assert carried.before == 1.0
        assert carried.residual < 0.6
        assert carried.damage[0] > 0.7
        assert found.speaks(carried) == (carried.residual <= 0.52)
        assert inside["blocks.1.mixer.state"].damage[0] == 0.0, "nobody reads what an idle block holds"


@pytest.mark.parametrize("architecture", ["sliding_window", "base_conv"])
def test_inputs_that_are_kept_side_by_side_are_no_state_to_erase(architecture):
    spec = spec_of({"erase": {**SMALL, "times": [1, 2]}}, Parity(length=8), architecture)
    found = found_of(fresh(spec), spec)
    assert {one.site for one in found.erased} == {"blocks.0.resid_pre", "blocks.0.resid_post"}

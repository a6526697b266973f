"""Foreign modules: the same engine, the same promises."""

import pytest
import torch

from mixerscope.errors import SelfTestFailed, SiteNeverFired, UnknownName, UserError
from mixerscope.interventions import PairSettings, adapt, check_model, interchange, make_pairs, plan_grid
from mixerscope.randomness import construction
from mixerscope.sites import edit, record
from mixerscope.tasks import AR
from tests.interventions.homemade import SITES, HomeMade

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=5, slots=("key", "value")), data_seed=0)


def make(sites=SITES, head="out"):
    with construction(0):
        module = HomeMade(TASK.vocab_size, 12).double()
    return adapt(module, sites, head=head, logits=lambda out: out["scores"])


@pytest.mark.parametrize("head", ["out", None])
def test_every_cell_equals_a_loop_with_hooks_of_our_own(head):
    model = make(head=head)
    grid = interchange(model, PAIRS, batch_documents=3)
    module = model.foreign
    read, answers = PAIRS.original.answers()
    rows, effects = torch.arange(len(PAIRS)), 0
    # The one place that needs no care with tuples: what leaves layer 0.
    cells = {cell: grid.cells[cell] for cell in plan_grid(model, PAIRS, sites=["blocks.0.resid_post"])}
    assert {*plan_grid(model, PAIRS)} < {*grid.cells}, "what a verdict looks at is among the default cells"
    with torch.no_grad():
        for cell, measured in cells.items():
            base, source = PAIRS.corrupted[cell.slot], PAIRS.original
            if cell.direction == "break":
                base, source = source, base
            kept = module.stack[0](module.table(source.tokens))
            at = PAIRS.positions(cell.role)
            x = module.stack[0](module.table(base.tokens))
            x[rows, at] = kept[rows, at]
            want = module.out(module.stack[1](x))[rows, read].softmax(-1)[rows, answers]
            torch.testing.assert_close(measured.effects.likelihood, want, rtol=1e-10, atol=0)
            unedited = (grid.corrupted[cell.slot] if cell.direction == "restore" else grid.original).likelihood
            effects += bool((want - unedited).abs().max() > 1e-6)
    assert effects > 3


def test_a_sound_mapping_passes_and_says_so():
    found = check_model(make(), PAIRS.original)
    assert found.passed, str(found)
    text = str(found)
    assert "pass  blocks.0.resid_post = blocks.0.resid_pre + blocks.0.mixer_out + blocks.0.mlp_out" in text
    assert "pass  blocks.1.resid_pre = blocks.0.resid_post" in text
    assert "pass  head out" in text
    assert len(found.sites) == len(SITES)


def test_a_fused_path_is_named():
    found = check_model(make({**SITES, "blocks.0.gate": "stack.0.mean.gate"}), PAIRS.original.tokens)
    assert found.failures() == {
        "blocks.0.gate": "it never fires: the forward pass does not call 'stack.0.mean.gate' (a fused path?)"
    }


def test_a_fused_path_is_an_error_in_every_use():
    model = make({"gate": "stack.0.mean.gate"})
    with pytest.raises(SiteNeverFired, match="'gate' never fired"), record(model, ["gate"]):
        model(PAIRS.original.tokens)
    with pytest.raises(SiteNeverFired), edit(model, {"gate": lambda x: x}):
        model(PAIRS.original.tokens)
    with pytest.raises(SelfTestFailed, match=r"'gate' cannot be trusted: it never fires"):
        interchange(model, PAIRS, plan_grid(model, PAIRS))


def test_a_wrong_mapping_does_not_add_up():
    wrong = {**SITES, "blocks.0.mixer_out": "stack.0.wide", "blocks.0.mlp_out": "stack.0.mean:output[0]"}
    del wrong["blocks.0.mlp_in"]
    wrong["blocks.0.resid_mid"] = "stack.0.wide:input"
    failures = check_model(make(wrong), PAIRS.original).failures()
    assert set(failures) == {
        "blocks.0.resid_mid = blocks.0.resid_pre + blocks.0.mixer_out",
        "blocks.0.resid_post = blocks.0.resid_mid + blocks.0.mlp_out",
    }


def test_a_place_without_positions_and_one_thrown_away():
    with construction(0):
        module = HomeMade(TASK.vocab_size, 12)
    module.stack[1].mean.register_forward_hook(lambda m, args, out: (out[0], out[0].mean(1)))
    sites = {"other": "stack.1.mean:output[1]", "tuple": "stack.1.mean:output[0]"}
    failures = check_model(adapt(module, sites, logits=lambda out: out["scores"]), PAIRS.original).failures()
    assert list(failures) == ["other"]
    assert "it holds [5, 12], not [5 documents" in failures["other"]


def test_a_model_that_looks_ahead_is_refused():
    model = make({"late": "stack.0"})
    model.foreign.stack[1].register_forward_pre_hook(lambda m, args: (args[0].flip(1),))
    with pytest.raises(SelfTestFailed, match="not causal"):
        interchange(model, PAIRS, plan_grid(model, PAIRS))


def test_names_and_places_are_checked_when_adapting():
    with pytest.raises(UnknownName, match=r"no submodule named 'stak\.0'; did you mean 'stack\.0'"):
        make({"blocks.0.resid_post": "stak.0"})
    with pytest.raises(UnknownName, match="no submodule named 'haed'"):
        make(head="haed")
    with pytest.raises(UserError, match="is not a place"):
        make({"blocks.0.resid_post": "stack.0:between"})
    with pytest.raises(UserError, match="cannot name a site"):
        make({"forward": "stack.0"})
    with pytest.raises(UserError, match="say by `logits`"):
        adapt(make().foreign, SITES)(PAIRS.original.tokens)


def test_nothing_is_left_behind_after_an_error():
    model = make()
    model.train()

    def fail(x):
        raise RuntimeError("broken edit")

    with pytest.raises(RuntimeError, match="broken edit"), edit(model, {"blocks.1.mixer_in": fail}):
        model(PAIRS.original.tokens)
    check_model(model, PAIRS.original)
    modules = list(model.foreign.modules())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in modules)
    assert all(m.training for m in modules)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())

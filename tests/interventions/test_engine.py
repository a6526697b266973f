"""The fast engine against the obvious slow loop: one full forward pass per cell, with the edit in place."""

import pytest
import torch

from mixerscope.errors import SelfTestFailed, UnknownName, UserError
from mixerscope.interventions import Cell, Effects, Measured, PairSettings, interchange, make_pairs, plan_grid
from mixerscope.interventions.engine import join_chunks
from mixerscope.interventions.pairs import Pairs
from mixerscope.model import Model, build_model
from mixerscope.sites import edit, named_sites, record
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=3, num_keys=6, num_values=6)


def make(architecture: str, layers: int = 2, documents: int = 7) -> tuple[Model, Pairs]:
    spec = ModelSpec(architecture=architecture, width=16, layers=layers, max_length=16, init="small_model")
    pairs = make_pairs(TASK, PairSettings(documents=documents, slots=("key", "value")), data_seed=0)
    return build_model(spec, TASK.vocab_size, seed=1).double(), pairs


@torch.no_grad()
def naive(model: Model, pairs: Pairs, cell: Cell) -> Effects:
    """The definition of a cell."""
    base, source = pairs.corrupted[cell.slot], pairs.original
    if cell.direction == "break":
        base, source = source, base
    places = pairs.places(cell.role)
    with record(model, [cell.site]) as found:
        model(source.tokens)

    def write(x):
        x = x.clone()
        for i, positions in enumerate(places.tolist()):
            for p in positions:
                at = (i, p) if cell.head < 0 else (i, p, cell.head)
                x[at] = found[cell.site][at]
        return x

    with edit(model, {cell.site: write}):
        logits = model(base.tokens)
    read, answers = pairs.original.answers()
    return Effects.of(logits[torch.arange(len(pairs)), read], answers)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("architecture", ["attention", "based", "mamba", "base_conv", "linear_attention"])
def test_every_cell_equals_the_slow_loop(architecture: str, layers: int):
    model, pairs = make(architecture, layers)
    grid = interchange(model, pairs, batch_documents=4)
    seen_effect = 0
    for cell, measured in grid.cells.items():
        want = naive(model, pairs, cell)
        torch.testing.assert_close(measured.effects.likelihood, want.likelihood, rtol=1e-10, atol=0)
        torch.testing.assert_close(measured.effects.logit, want.logit, rtol=1e-9, atol=1e-12)
        base = grid.corrupted[cell.slot] if cell.direction == "restore" else grid.original
        if measured.status == "measured":
            seen_effect += bool((measured.effects.likelihood - base.likelihood).abs().max() > 1e-9)
        else:
            torch.testing.assert_close(want.likelihood, base.likelihood, rtol=1e-12, atol=0)
    assert seen_effect > 10, "the grid must contain real effects for this test to mean anything"


def test_what_a_verdict_looks_at_is_in_the_grid_unless_a_plan_says_otherwise():
    model, pairs = make("mamba", layers=3)
    cells = list(interchange(model, pairs).cells)
    asked = plan_grid(model, pairs)
    assert cells[: len(asked)] == asked
    more = cells[len(asked) :]
    assert len(set(cells)) == len(cells)
    at = {cell.site for cell in more if "&" in cell.role}
    assert at == {"blocks.1.resid_pre", "blocks.2.resid_pre", *(f"blocks.{i}.mixer.conv_out" for i in range(3))}
    beside = {(cell.direction, cell.site) for cell in more if "&" not in cell.role}
    assert beside == {
        *((direction, site) for direction in ("restore", "break") for site in at),
        *(("restore", f"blocks.{i}.mixer.scan_out") for i in range(2)),  # the last part of a block that is not the last
    }
    assert {cell.slot for cell in more} == {"key", "value", "query"}, "what is asked must meet what is found"
    assert set(interchange(model, pairs, asked).cells) == set(asked)


def test_slots_that_belong_together_are_corrupted_and_not_patched():
    pairs = make_pairs(TASK, PairSettings(documents=7), data_seed=0)
    both = make_pairs(TASK, PairSettings(documents=7, slots=("key", "value"), symbols="slot-class"), data_seed=0)
    assert (pairs.patched, list(pairs.corrupted)) == (("key",), ["key", "value", "query"])
    assert torch.equal(pairs.corrupted["value"].tokens, both.corrupted["value"].tokens)
    model, _ = make("attention")
    grid = interchange(model, pairs)
    assert {cell.site for cell in grid.cells if cell.slot != "key"} == {"blocks.1.resid_pre"}, "where a verdict looks"
    assert not torch.equal(grid.corrupted["value"].likelihood, grid.original.likelihood)
    assert repr(grid).endswith("key corrupted, 7 documents>")


def test_chunking_and_order_change_nothing():
    model, pairs = make("mamba")
    plan = plan_grid(model, pairs)
    whole = interchange(model, pairs, plan, batch_documents=64)
    shuffled = interchange(model, pairs, plan[::-1], batch_documents=1)
    assert set(whole.cells) == set(shuffled.cells)
    for cell in plan:
        torch.testing.assert_close(
            whole.cells[cell].effects.likelihood, shuffled.cells[cell].effects.likelihood, rtol=1e-10, atol=0
        )


def test_restoring_the_corrupted_token_where_it_enters_restores_everything():
    model, pairs = make("attention")
    grid = interchange(model, pairs)
    cell = Cell("key", "restore", "embed", "key")
    torch.testing.assert_close(grid.cells[cell].effects.likelihood, grid.original.likelihood, rtol=1e-12, atol=0)
    gone = Cell("key", "break", "embed", "key")
    torch.testing.assert_close(
        grid.cells[gone].effects.likelihood, grid.corrupted["key"].likelihood, rtol=1e-12, atol=0
    )


def test_cells_that_were_not_run_say_why():
    model, pairs = make("attention")
    cells = interchange(model, pairs).cells
    last = cells[Cell("key", "restore", "blocks.1.mlp_out", "key")]
    assert (last.status, last.reason) == (
        "no path",
        "no mixer follows that could carry it to the position that is read",
    )
    before = cells[Cell("value", "restore", "blocks.0.resid_pre", "key")]
    assert before.status == "same"


def test_a_model_that_is_not_finite_is_refused():
    model, pairs = make("attention")
    with torch.no_grad():
        model.layers()[1].mlp.fc2.bias.fill_(float("nan"))
    with pytest.raises(SelfTestFailed):
        interchange(model, pairs, plan_grid(model, pairs, sites=["blocks.0.resid_pre"], roles=["key"]))


def test_a_number_that_is_not_finite_makes_its_cell_invalid():
    fine = Effects.of(torch.tensor([[0.5, 1.0]]), torch.tensor([1]))
    bad = Effects.of(torch.tensor([[0.5, 1.0], [0.5, float("nan")]]), torch.tensor([1, 1]))
    joined = join_chunks({"cell": [Measured(fine), Measured(bad)]})["cell"]
    assert (joined.status, joined.reason) == ("invalid", "not finite in 1 of 3 documents")


def test_unknown_names_are_refused_before_anything_runs():
    model, pairs = make("mamba")
    with pytest.raises(UnknownName, match=r"blocks\.0\.mlp_out"):
        plan_grid(model, pairs, sites=["blocks.0.mlp_out"])
    with pytest.raises(UnknownName, match="no role named 'kez'; did you mean 'key'"):
        plan_grid(model, pairs, roles=["kez"])
    with pytest.raises(UserError, match=r"role 'key\+40' lies outside the document"):
        plan_grid(model, pairs, roles=["key+40"])


def test_offsets_from_a_role():
    model, pairs = make("mamba")
    plan = plan_grid(model, pairs, sites=["blocks.1.resid_pre"], roles=["key+1", "value"])
    grid = interchange(model, pairs, plan)
    for direction in ("restore", "break"):
        by_role = [grid.cells[Cell("key", direction, "blocks.1.resid_pre", role)] for role in ("key+1", "value")]
        torch.testing.assert_close(by_role[0].effects.likelihood, by_role[1].effects.likelihood, rtol=1e-12, atol=0)


def test_the_model_is_left_as_it_was():
    model, pairs = make("based")
    model.train()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    interchange(model, pairs)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert all(site.taps == () for site in named_sites(model).values())


def test_pairs_differ_in_one_token_and_are_the_same_every_time():
    pairs = make_pairs(TASK, PairSettings(documents=50, slots=("key", "value")), data_seed=3)
    for batch in pairs.corrupted.values():
        assert ((batch.tokens != pairs.original.tokens).sum(1) == 1).all()
    again = make_pairs(TASK, PairSettings(documents=50, slots=("key", "value")), data_seed=3)
    assert pairs.sha256() == again.sha256()
    assert pairs.sha256() == make_pairs(TASK, PairSettings(documents=50), data_seed=3).sha256(), "the same documents"
    for other in ({"symbols": "query-class"}, {"avoid_present": True}, {"documents": 49}, {"slots": ("query",)}):
        settings = PairSettings(documents=50, slots=("key", "value")).changed(**other)
        same = "slots" in other  # whatever is patched, the slots that belong together are corrupted
        assert (pairs.sha256() == make_pairs(TASK, settings, data_seed=3).sha256()) == same, other


def test_cells_that_are_the_same_edit_share_a_result_and_say_so():
    model, pairs = make("attention")
    cells = interchange(model, pairs).cells
    end = cells[Cell("key", "restore", "blocks.0.resid_post", "value")]
    begin = cells[Cell("key", "restore", "blocks.1.resid_pre", "value")]
    assert (end.status, end.reason) == ("measured", "same edit as at blocks.1.resid_pre")
    assert (begin.status, begin.reason) == ("measured", "")
    assert end.effects is begin.effects
    inner = cells[Cell("key", "restore", "blocks.0.mlp_in", "key")]
    assert inner.reason == "same edit as at blocks.0.mlp_out"
    # The key's own embedding differs, so what the mixer adds to it is an edit of its own there, and nowhere else.
    assert cells[Cell("key", "restore", "blocks.0.mixer_out", "key")].reason == ""
    assert cells[Cell("key", "restore", "blocks.0.mixer_out", "value")].reason == "same edit as at blocks.1.resid_pre"

"""Every edit, and joint positions, against a full forward pass with the activation written out by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions import (
    Add,
    Cell,
    Mean,
    Noise,
    PairSettings,
    ProjectOut,
    Resample,
    interchange,
    make_pairs,
    plan_grid,
)
from mixerscope.interventions.edits import Edit, Here, Swap, Zero, read_edit
from mixerscope.interventions.effects import Distribution, Effects
from mixerscope.interventions.pairs import Pairs
from mixerscope.model import Model, build_model
from mixerscope.progress import Cancelled, Stop
from mixerscope.randomness import stream
from mixerscope.sites import edit, record
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=7), data_seed=0)
WIDTH = 16
VECTOR = torch.randn(WIDTH, generator=stream(0, "vector"), dtype=torch.float64)
PLANE = torch.randn(2, WIDTH, generator=stream(0, "plane"), dtype=torch.float64)
NAMED = {"steer": Add(VECTOR), "erase": ProjectOut(torch.cat([PLANE, PLANE[:1]]))}  # one direction twice: still a plane
SITES = ["embed", "blocks.0.mixer_in", "blocks.0.mixer_out", "blocks.1.resid_pre", "blocks.1.mlp_in"]


def make(architecture: str = "attention") -> Model:
    spec = ModelSpec(architecture=architecture, width=WIDTH, max_length=16, init="small_model")
    return build_model(spec, TASK.vocab_size, seed=1).double()


def without_plane(x: Tensor) -> Tensor:
    basis = torch.linalg.qr(PLANE.T).Q  # [d, 2]
    return x - x @ basis @ basis.T


BY_HAND: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "swap": lambda _, other: other,
    "zero": lambda own, _: 0 * own,
    "mean": lambda own, _: own.mean(0, keepdim=True).expand_as(own),
    "steer": lambda own, _: own + VECTOR,
    "erase": lambda own, _: without_plane(own),
}


@torch.no_grad()
def by_hand(model: Model, pairs: Pairs, cell: Cell, written: Callable[[Tensor, Tensor], Tensor]) -> Effects:
    base, source = pairs.corrupted[cell.slot], pairs.original
    if cell.direction == "break":
        base, source = source, base
    with record(model, [cell.site]) as other:
        model(source.tokens)

    def write(x: Tensor) -> Tensor:
        out = x.clone()
        for role in cell.role.split("&"):
            at = (torch.arange(len(x)), pairs.positions(role))
            out[at] = written(x[at], other[cell.site][at])
        return out

    read, answers = pairs.original.answers()
    rows = torch.arange(len(pairs))
    plain = model(base.tokens)[rows, read]
    with edit(model, {cell.site: write}):
        logits = model(base.tokens)[rows, read]
    return Effects.of(logits, answers, unedited=Distribution.of(plain))


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("architecture", ["attention", "gla"])
def test_every_edit_and_joint_role_equals_the_full_pass(architecture: str, name: str):
    model = make(architecture)
    roles = ["key", "pos:2", "key&value"]
    plan = plan_grid(model, PAIRS, SITES, roles, edits=[name])
    grid = interchange(model, PAIRS, plan, batch_documents=3, edits=NAMED)
    moved = 0
    for cell, measured in grid.cells.items():
        want = by_hand(model, PAIRS, cell, BY_HAND[name])
        torch.testing.assert_close(measured.effects.likelihood, want.likelihood, rtol=1e-9, atol=0)
        torch.testing.assert_close(measured.effects.kl, want.kl, rtol=1e-6, atol=1e-12)
        moved += bool((want.kl > 1e-9).any())
        if measured.status != "measured":
            assert float(want.kl.max()) < 1e-15, (cell, measured.reason)
    assert moved > len(plan) // 4


def test_joint_restoration_can_do_what_no_single_position_does():
    model = make()
    site = "blocks.1.resid_pre"
    everything = "&".join(f"pos:{i}" for i in range(PAIRS.original.tokens.shape[1]))
    grid = interchange(model, PAIRS, plan_grid(model, PAIRS, [site], ["key", everything], ["restore"]))
    whole = grid.cells[Cell("key", "restore", site, everything)].effects
    torch.testing.assert_close(whole.likelihood, grid.original.likelihood, rtol=1e-12, atol=0)
    alone = grid.cells[Cell("key", "restore", site, "key")].effects
    assert (alone.likelihood - grid.original.likelihood).abs().max() > 1e-6


def here(everyone: Tensor, documents: slice) -> Here:
    return Here("embed", "key", everyone[documents], everyone[documents] + 1, documents, everyone)


EVERYONE = torch.randn(9, 1, 5, generator=stream(0, "everyone"), dtype=torch.float64)


def test_resample_takes_another_documents_activation_each_once():
    value = Resample().value(here(EVERYONE, slice(0, 9)))
    partners = [int((row == EVERYONE).all(-1).nonzero()[0, 0]) for row in value]
    assert sorted(partners) == list(range(9))
    assert all(partner != i for i, partner in enumerate(partners))
    assert not torch.equal(value, Resample(seed=1).value(here(EVERYONE, slice(0, 9))))
    with pytest.raises(UserError, match="at least 2 documents"):
        Resample().value(here(EVERYONE[:1], slice(0, 1)))


@pytest.mark.parametrize("edited", [Resample(), Noise(), Mean(), Noise(scale=3.0, seed=2)])
def test_what_is_written_does_not_depend_on_the_chunks(edited):
    whole = edited.value(here(EVERYONE, slice(0, 9)))
    parts = [edited.value(here(EVERYONE, slice(i, min(i + 4, 9)))) for i in range(0, 9, 4)]
    assert torch.equal(torch.cat(parts), whole)


def test_noise_has_the_spread_of_the_documents():
    wide = torch.randn(4000, 1, 2, generator=stream(0, "wide"), dtype=torch.float64) * torch.tensor([1.0, 5.0])
    added = Noise(scale=2.0).value(here(wide, slice(0, 4000))) - wide
    torch.testing.assert_close(added.std(0)[0], torch.tensor([2.0, 10.0], dtype=torch.float64), rtol=0.1, atol=0)
    assert abs(float(torch.corrcoef(torch.stack([added[:, 0, 0], wide[:, 0, 0]]))[0, 1])) < 0.1


def test_wrong_edits_are_refused():
    model = make()
    plan = plan_grid(model, PAIRS, ["embed"], ["key"], edits=["zerro"])
    with pytest.raises(UnknownName, match="no edit named 'zerro'; did you mean 'zero'"):
        interchange(model, PAIRS, plan)
    short = {"steer": Add(torch.zeros(3)), "erase": ProjectOut(torch.zeros(2, 3))}
    for name in short:
        with pytest.raises(UserError, match=r"shape \[3\], site 'embed' has \[16\]"):
            interchange(model, PAIRS, plan_grid(model, PAIRS, ["embed"], ["key"], edits=[name]), edits=short)
    with pytest.raises(UserError, match="'key&key' names a position twice"):
        plan_grid(model, PAIRS, ["embed"], ["key&key"])
    with pytest.raises(UserError, match="'pos:99' lies outside the document in 7 of 7"):
        plan_grid(model, PAIRS, ["embed"], ["pos:99"])
    with pytest.raises(UserError, match="'key ' is not a role"):
        plan_grid(model, PAIRS, ["embed"], ["key & value"])


def test_roles_may_have_digits_in_their_names():
    batch = replace(PAIRS.original, roles={**PAIRS.original.roles, "key2": PAIRS.original.roles["key"]})
    pairs = replace(PAIRS, original=batch)
    assert torch.equal(pairs.places("key2+1&value"), pairs.places("key+1&value"))


def test_the_counterfactual_is_the_answer_of_the_corrupted_document():
    task = AR(num_pairs=3, num_keys=6, num_values=6)
    pairs = make_pairs(task, PairSettings(documents=40, slots=("key", "value"), symbols="slot-class"), data_seed=0)
    # A changed value is the answer now; a changed key leaves the query without one.
    at = torch.arange(40)
    assert torch.equal(pairs.reads.others["value"][:, 0], pairs.corrupted["value"].tokens[at, pairs.positions("value")])
    assert bool((pairs.reads.others["key"] == -100).all())
    model = make()
    grid = interchange(model, pairs, plan_grid(model, pairs, ["embed"], ["key", "value"], ["restore"]))
    read, answers = pairs.original.answers()
    with torch.no_grad():
        logits = model(pairs.corrupted["value"].tokens)[at, read]
        want = logits[at, answers] - logits[at, pairs.reads.others["value"][:, 0]]
        torch.testing.assert_close(grid.corrupted["value"].logit_difference, want)
        logits = model(pairs.corrupted["key"].tokens)[at, read]
        wrong = logits.clone()
        wrong[at, answers] = -1e9
        torch.testing.assert_close(grid.corrupted["key"].logit_difference, logits[at, answers] - wrong.max(1).values)
        # The same counterfactual answer is kept when the edit has made the run another one.
        logits2 = model(pairs.original.tokens)[at, read]
        want = logits2[at, answers] - logits2[at, wrong.argmax(1)]
    restored = grid.cells[Cell("key", "restore", "embed", "key")].effects
    torch.testing.assert_close(restored.logit_difference, want)


@pytest.mark.parametrize(
    ("text", "written", "edit_"),
    [
        ("swap", "swap", Swap()),
        ("noise", "noise", Noise()),
        ("noise:scale=0.50", "noise:scale=0.5", Noise(0.5)),
        ("noise:seed=1,scale=2", "noise:scale=2.0,seed=1", Noise(2.0, 1)),
        ("noise:scale=1,seed=0", "noise", Noise()),
        ("resample:seed=3", "resample:seed=3", Resample(3)),
    ],
)
def test_an_edit_with_settings_has_one_way_of_being_written(text: str, written: str, edit_):
    assert read_edit(text) == (written, edit_)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nois:scale=2", "no edit named 'nois'; did you mean 'noise'"),
        ("noise:scael=2", "noise has no setting 'scael'; it has scale, seed"),
        ("zero:scale=2", "zero has no setting 'scale'; it has none"),
        ("noise:scale=much", "scale takes a number, as in noise:scale=1.0"),
        ("noise:scale=nan", "scale takes a number"),
        ("noise:seed=0.5", "seed takes a number, as in noise:seed=0"),
        ("noise:scale", "scale takes a number"),
    ],
)
def test_settings_that_an_edit_does_not_have_are_refused(text: str, complaint: str):
    with pytest.raises(UserError, match=complaint):
        read_edit(text)


def test_a_cell_may_name_an_edit_with_settings():
    model = make()
    plan = plan_grid(model, PAIRS, ["embed"], ["key"], ["restore"], edits=["noise:scale=0.5", "mine"])
    weak, mine = interchange(model, PAIRS, plan, edits={"mine": Noise(0.5)}).cells.values()
    torch.testing.assert_close(weak.effects.likelihood, mine.effects.likelihood, rtol=1e-12, atol=0)
    assert weak.effects.kl.max() > 1e-9


class Scaled(Edit):
    """Writes into what it is given, as people do."""

    def value(self, here):
        here.base[..., 0] += 1
        return here.base


def test_an_edit_may_write_into_what_it_is_given():
    model = make()
    cells = [Cell("key", "restore", "blocks.1.resid_pre", "query", edit=name) for name in ("add", "scaled")]
    vector = torch.zeros(16)
    vector[0] = 1
    grid = interchange(model, PAIRS, cells, edits={"add": Add(vector), "scaled": Scaled()})
    added, scaled = (grid.cells[cell] for cell in cells)
    assert added.status == scaled.status == "measured"
    torch.testing.assert_close(scaled.effects.logit, added.effects.logit)


class Gives(Edit):
    def __init__(self, what):
        self.what = what

    def value(self, here):
        return self.what(here.base)


@pytest.mark.parametrize(
    "what", [lambda x: x[:1], lambda x: x[:, 0], lambda x: x.long(), lambda x: x.sum(), lambda x: None]
)
def test_an_edit_that_gives_something_else_than_an_activation_is_refused_by_name(what):
    cell = Cell("key", "restore", "blocks.1.resid_pre", "query", edit="odd")
    with pytest.raises(UserError, match=r"edit 'odd' gives .* where torch.float.*stands, at site 'blocks.1.resid_pre'"):
        interchange(make(), PAIRS, [cell], edits={"odd": Gives(what)})


def test_what_is_no_edit_is_refused():
    cell = Cell("key", "restore", "blocks.1.resid_pre", "query", edit="odd")
    for odd in (Zero, lambda here: here.base):
        with pytest.raises(UserError, match=r"edit 'odd' is .*, not an Edit"):
            interchange(make(), PAIRS, [cell], edits={"odd": odd})


def test_a_plan_may_be_any_iterable_and_loses_no_cell():
    model = make()
    plan = plan_grid(model, PAIRS, ["embed"], ["key"])
    assert list(interchange(model, PAIRS, iter(plan)).cells) == plan


def test_numbers_of_documents_below_one_and_reads_of_cells_are_refused():
    model, cell = make(), Cell("key", "restore", "embed", "key")
    with pytest.raises(UserError, match="batch_documents = 0"):
        interchange(model, PAIRS, [cell], batch_documents=0)
    with pytest.raises(UserError, match="the pairs say where effects are measured"):
        interchange(model, PAIRS, [replace(cell, read="answer")])


@pytest.mark.parametrize("text", [f"noise:seed=1{'0' * 400}", "noise:scale=1,scale=2", "noise:scale=1e999"])
def test_settings_of_edits_that_are_no_numbers_or_given_twice_are_refused_in_a_sentence(text):
    with pytest.raises(UserError, match=r"takes a number|given twice"):
        read_edit(text)


def test_documents_of_another_task_are_refused_before_a_model_sees_them():
    other = make_pairs(AR(num_pairs=3, num_keys=60, num_values=60), PairSettings(documents=4), data_seed=0)
    with pytest.raises(UserError, match="they are of another task"):
        interchange(make(), other)


def test_whoever_is_told_of_progress_can_end_a_grid_and_the_model_is_as_it_was():
    model, told = make().train(), []

    def second(done: int, total: int) -> Stop | None:
        told.append((done, total))
        return Stop("enough") if done == 2 else None

    with pytest.raises(Cancelled, match="enough"):
        interchange(model, PAIRS, batch_documents=2, progress=second)
    assert told == [(1, 4), (2, 4)]
    assert all(module.training for module in model.modules())

"""Single heads: sites say how many they have, and a cell that names one edits that one and no other."""

from dataclasses import replace

import pytest
import torch

from mixerscope.errors import UserError
from mixerscope.interventions import Cell, Effects, PairSettings, interchange, interchange_cohort, make_pairs, plan_grid
from mixerscope.interventions.plan import MOST_HEADS, judging_cells
from mixerscope.model import Model, build_model
from mixerscope.randomness import stream
from mixerscope.registry import MIXERS
from mixerscope.sites import edit, find_site, named_sites, record
from mixerscope.spec import ModelSpec
from mixerscope.spec.options import options_model
from mixerscope.tasks import AR

TASK = AR(num_pairs=2, num_keys=4, num_values=4)
PAIRS = make_pairs(TASK, PairSettings(documents=5), data_seed=0)
HEADS = 2
BUILT_IN = [entry.name for entry in MIXERS.entries() if entry.origin == "mixerscope"]
OPTIONS = {name: {"heads": HEADS} for name in BUILT_IN if "heads" in options_model(MIXERS.load(name)).model_fields}
OPTIONS["h3"] = {"head_dim": 4}  # as many heads as there are of this size
WIDTH = 8


def make(mixer: str, seed: int = 0) -> Model:
    options = OPTIONS.get(mixer, {})
    spec = ModelSpec(architecture=mixer, width=WIDTH, max_length=16, init="small_model", options=options)
    model, rng = build_model(spec, TASK.vocab_size, seed).double(), stream(seed, "stir")
    with torch.no_grad():  # some start where nothing they compute gets out
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=rng, dtype=weight.dtype)
    return model


def test_there_are_mixers_with_heads():
    assert {"attention", "sliding_window", "deltanet", "gla", "mamba2", "retnet", "rwkv7", "h3"} <= set(OPTIONS)


@pytest.mark.parametrize("mixer", BUILT_IN)
def test_sites_have_the_heads_they_declare(mixer: str):
    model = make(mixer)
    sites = named_sites(model)
    with record(model, sites) as found:
        model(PAIRS.original.tokens)
    declared = {name: site.heads for name, site in sites.items() if site.heads > 1}
    for name, heads in declared.items():
        assert found[name].shape[2] == heads, name
    # A part of each head's own is always behind the position and the head: one that forgot to say so is told.
    silent = [name for name, x in found.items() if x.dim() > 3 and x.shape[2] == HEADS and name not in declared]
    assert silent == []
    assert bool(declared) == (mixer in OPTIONS)
    assert set(declared.values()) <= {HEADS}


@torch.no_grad()
def edited_by_hand(model: Model, cells: list[Cell]) -> list[Effects]:
    """One head written in a whole forward pass, restoring."""
    with record(model, named_sites(model)) as given:
        model(PAIRS.original.tokens)
    read, answers = PAIRS.original.answers()
    found: list[Effects] = []
    for cell in cells:

        def write(x: torch.Tensor, cell: Cell = cell) -> torch.Tensor:
            x = x.clone()
            for i, positions in enumerate(PAIRS.places(cell.role).tolist()):
                for p in positions:
                    x[i, p, cell.head] = 0 if cell.edit == "zero" else given[cell.site][i, p, cell.head]
            return x

        with edit(model, {cell.site: write}):
            logits = model(PAIRS.corrupted[cell.slot].tokens)
        found.append(Effects.of(logits[torch.arange(len(PAIRS)), read], answers))
    return found


def head_cells(model: Model) -> list[Cell]:
    sites = [name for name, site in named_sites(model).items() if site.heads > 1]
    whole = plan_grid(model, PAIRS, sites, ["key", "value&query"], ["restore"])
    whole += plan_grid(model, PAIRS, sites[-1:], ["query"], ["restore"], edits=["zero"])
    return [replace(cell, head=head) for cell in whole for head in range(HEADS)]


@pytest.mark.parametrize("mixer", sorted(OPTIONS))
def test_a_cell_of_one_head_is_the_edit_by_hand(mixer: str):
    models = [make(mixer, seed) for seed in range(2)]
    plan = head_cells(models[0])
    alone = interchange(models[0], PAIRS, plan, batch_documents=3)
    together = interchange_cohort(models, PAIRS, plan, batch_documents=3)
    by_hand = [edited_by_hand(model, plan) for model in models]
    for grid, wanted in ((alone, by_hand[0]), *zip(together, by_hand, strict=True)):
        for cell, want in zip(plan, wanted, strict=True):
            found = grid.cells[cell].effects
            torch.testing.assert_close(found.likelihood, want.likelihood, rtol=1e-8, atol=0)
            torch.testing.assert_close(found.logit, want.logit, rtol=1e-8, atol=1e-11)
    moved = apart = 0
    for cell, measured in alone.cells.items():
        other = alone.cells[replace(cell, head=HEADS - 1 - cell.head)].effects.likelihood
        moved += bool((measured.effects.likelihood - alone.corrupted["key"].likelihood).abs().max() > 1e-9)
        apart += bool((measured.effects.likelihood - other).abs().max() > 1e-9)
    assert moved > 5, "without effects this test means nothing"
    assert apart > 5, "nor if both heads have the same"


def test_a_head_that_is_not_there_is_refused():
    model = make("attention")
    site = "blocks.0.mixer.heads_out"
    for head in (HEADS, -2):
        with pytest.raises(UserError, match=f"'{site}' has the heads 0 to 1, so none is number {head}"):
            interchange(model, PAIRS, [Cell("key", "restore", site, "key", head=head)])
    for whole in ("embed", "blocks.0.mixer_out", "blocks.0.mixer.state"):
        with pytest.raises(UserError, match=f"'{whole}' is not divided into heads"):
            interchange(model, PAIRS, [Cell("key", "restore", whole, "key", head=0)])


def test_a_verdict_looks_at_each_head_where_there_are_not_too_many():
    cells = judging_cells(make("attention"), PAIRS)
    assert {(cell.site, cell.head) for cell in cells if cell.head >= 0} == {
        (f"blocks.{block}.mixer.heads_out", head) for block in range(2) for head in range(HEADS)
    }
    many = ModelSpec(architecture="attention", width=4 * MOST_HEADS, options={"heads": 2 * MOST_HEADS})
    model = build_model(many, TASK.vocab_size, 0)
    assert all(cell.head < 0 for cell in judging_cells(model, PAIRS))


@pytest.mark.parametrize("name", OPTIONS)
def test_what_a_mixer_with_heads_moves_can_be_edited_head_by_head(name: str):
    mixer = make(name).layers()[0].mixer
    [*_, last] = mixer.movers
    assert find_site(mixer, last.site).heads == HEADS

"""The same cells through other people's tools: pyvene and nnsight, each on our models by the names of our sites.

Every function returns the likelihood of the original answer [n] per cell of the plan, restore direction.
"""

import re
from collections.abc import Iterable
from importlib import import_module
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from mixerscope.interventions import Cell, Pairs
from mixerscope.interventions.resume import pick
from mixerscope.model import Model
from mixerscope.sites import record
from mixerscope.training.objective import answer_likelihood

Likelihoods = dict[Cell, Tensor]


class ForPyvene(nn.Module):
    """Our model with what pyvene asks of one: named inputs, a `config` and a `device`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.config = SimpleNamespace(to_dict=dict)
        self.device = next(model.parameters()).device

    def forward(self, input_ids: Tensor, read: Tensor | None = None) -> Tensor:
        return self.model(input_ids, read)


def pyvene_component(site: str) -> str:
    """`blocks.0.mixer_in` -> `model.blocks[0].mixer_in.output`."""
    path = re.sub(r"[.](\d+)", r"[\1]", site)
    return f"model.{path}.output"


def _locations(positions: Tensor) -> dict[str, tuple[list, list]]:
    nested = [[[at] for at in positions.tolist()]]
    return {"sources->base": (nested, nested)}


def _by_site(plan: Iterable[Cell]) -> dict[str, list[Cell]]:
    grouped: dict[str, list[Cell]] = {}
    for cell in plan:
        assert cell.direction == "restore"
        grouped.setdefault(cell.site, []).append(cell)
    return grouped


def pyvene_as_the_reference(model: Model, pairs: Pairs, plan: list[Cell]) -> Likelihoods:
    """One wrapped model per site; per cell the source, the base and the edited base run, logits at every position."""
    pyvene = import_module("pyvene")

    read, answers = pairs.original.answers()
    found: Likelihoods = {}
    for site, cells in _by_site(plan).items():
        config = pyvene.IntervenableConfig(
            [{"component": pyvene_component(site), "intervention": pyvene.VanillaIntervention()}]
        )
        wrapped = pyvene.IntervenableModel(config, ForPyvene(model))
        for cell in cells:
            _, logits = wrapped(
                {"input_ids": pairs.corrupted[cell.slot].tokens},
                [{"input_ids": pairs.original.tokens}],
                _locations(pairs.positions(cell.role)),
                output_original_output=True,
            )
            found[cell] = answer_likelihood(pick(logits, read), answers)
    return found


def pyvene_used_well(model: Model, pairs: Pairs, plan: list[Cell]) -> Likelihoods:
    """The source runs once, and the head runs at the query alone: one cheap forward pass a cell."""
    pyvene = import_module("pyvene")

    read, answers = pairs.original.answers()
    found: Likelihoods = {}
    sites = _by_site(plan)
    with record(model, sites) as source:
        model(pairs.original.tokens, read[:, None])
    for site, cells in sites.items():
        config = pyvene.IntervenableConfig(
            [{"component": pyvene_component(site), "intervention": pyvene.VanillaIntervention()}]
        )
        wrapped = pyvene.IntervenableModel(config, ForPyvene(model))
        for cell in cells:
            positions = pairs.positions(cell.role)
            _, logits = wrapped(
                {"input_ids": pairs.corrupted[cell.slot].tokens, "read": read[:, None]},
                unit_locations={"base": _locations(positions)["sources->base"][0]},
                source_representations={wrapped.sorted_keys[0]: pick(source[site], positions)[:, None]},
            )
            found[cell] = answer_likelihood(logits[:, 0], answers)
    return found


def nnsight_used_well(model: Model, pairs: Pairs, plan: list[Cell]) -> Likelihoods:
    """The source runs once, the head at the query alone: one trace a cell."""
    nnsight = import_module("nnsight")

    read, answers = pairs.original.answers()
    found: Likelihoods = {}
    sites = _by_site(plan)
    with record(model, sites) as source:
        model(pairs.original.tokens, read[:, None])
    wrapped = nnsight.NNsight(model)
    rows = torch.arange(len(pairs))
    for site, cells in sites.items():
        module = wrapped.get(site)
        for cell in cells:
            positions = pairs.positions(cell.role)
            value = pick(source[site], positions)
            with wrapped.trace(pairs.corrupted[cell.slot].tokens, read[:, None]):
                module.output[rows, positions] = value
                logits = wrapped.output.save()
            found[cell] = answer_likelihood(logits[:, 0], answers)
    return found

"""Another state in the middle of a document: in the stream at a position, in the recurrent states after it, or both."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError
from mixerscope.interventions.cache import evaluating
from mixerscope.interventions.members import Members
from mixerscope.interventions.states import STATE, has_step_form, is_state, mixer_of, run_changing_states, state_after
from mixerscope.interventions.tagging import chunks
from mixerscope.mixers import Mixer
from mixerscope.model import Model, layers_of
from mixerscope.sites import edit, record
from mixerscope.tasks import Batch

Column = dict[str, Tensor]
"""Site to [k, n, d]: what a document holds at one position in the stream, and in the states after it."""


def held_states(model: nn.Module) -> list[str]:
    """State sites of mixers that carry a memory of one size; a cache of all that was read is no state. Foreign models
    do not say what theirs carry."""
    return [f"blocks.{i}.{STATE}" for i, block in enumerate(layers_of(model)) if _is_held(block.mixer)]


def _is_held(mixer: Mixer) -> bool:
    return has_step_form(mixer) and mixer.state_size(64) == mixer.state_size(128)


def carried_states(model: nn.Module) -> list[str]:
    """Those of them that are more than the latest inputs side by side, whose size doubles with the second one."""
    mixers = {site: mixer_of(model, site) for site in held_states(model)}
    return [site for site, mixer in mixers.items() if mixer.state_size(2) < 2 * mixer.state_size(1)]


def unwritten_mixers(model: Model, tokens: Tensor) -> list[str]:
    """Mixers that may hold something from one position to the next which is not written: they have no step of their own
    to say what, or a number that they hold behind these documents [n, t] is of the first and of the last input alike,
    and their memory is not of one size. Windows, and caches of keys and values, keep inputs apart."""
    written = {site.removesuffix(STATE) + "mixer" for site in carried_states(model)}
    others = {f"blocks.{i}.mixer": block.mixer for i, block in enumerate(layers_of(model))}
    inputs = {name: f"{name}_in" for name in others if name not in written}
    with evaluating(model), torch.no_grad(), record(model, [*inputs.values()]) as seen:
        model(tokens)
        return [
            name
            for name, given in inputs.items()
            if not has_step_form(others[name]) or not _keeps_inputs_apart(others[name], seen[given])
        ]


def _keeps_inputs_apart(mixer: Mixer, x: Tensor) -> bool:
    """Whether no number that is held behind x [n, t, d] changes with the first input and with the last."""
    usual = state_after(mixer, x)
    changed: list[Tensor] = []
    for end in (1, -1):  # at 0 all documents begin alike
        other = x.clone()
        other[:, end] = x[:, end].roll(1, 0)
        changed.append((state_after(mixer, other) != usual).any(0))
    return not bool((changed[0] & changed[1]).any())


def demand_settled(model: nn.Module, first: int, last: int) -> None:
    """Refuses to put what is held at one input in place of what is held at another one where that is of another size:
    short convolutions hold their latest inputs, and of the first ones there are fewer."""
    for site in carried_states(model):
        sizes = [mixer_of(model, site).state_size(at + 1) for at in (first, last)]
        if sizes[0] < sizes[1]:
            raise UserError(
                f"{site} holds {sizes[0]:,} numbers after input {first}, and {sizes[1]:,} later, which cannot take"
                " their place; make documents longer"
            )


def written_boundaries(model: Model) -> list[str]:
    """Boundaries behind the first block: at the one before it there is nothing but the token."""
    return list(model.boundaries()[1:])


def read_column(model: Model, tokens: Tensor, position: int) -> dict[str, Tensor]:
    """Site to [n, d]: the stream at a position, and the states after it."""
    states = carried_states(model)
    inputs = {site: site.replace(STATE, "mixer_in") for site in states}
    with record(model, [*written_boundaries(model), *inputs.values()]) as seen:
        model(tokens)
    found = {site: seen[site][:, position] for site in written_boundaries(model)}
    for site, given in inputs.items():
        mixer = model.layers()[int(site.split(".")[1])].mixer
        found[site] = state_after(mixer, seen[given][:, : position + 1])
    return found


def columns(members: Members, batch: Batch, position: int) -> Column:
    """What each model holds at a position of each document."""
    parts: dict[str, list[Tensor]] = {}

    def program(model: Model, tokens: Tensor) -> dict[str, Tensor]:
        return read_column(model, tokens, position)

    with members.evaluating():
        for _, part in chunks(members, batch):
            again = part.tokens.expand(len(members), *part.tokens.shape)
            for site, x in members.map(program, again).items():
                parts.setdefault(site, []).append(x)
    return {site: torch.cat(found, 1) for site, found in parts.items()}


@dataclass(frozen=True)
class Means:
    """The mean of what is held in each state of the automaton: site to [k, s, d]."""

    of: Mapping[str, Tensor]

    @staticmethod
    def over(column: Column, states: Tensor, count: int) -> "Means":
        """Of a column [k, n, d] with states [n]; zeros for states that do not occur."""
        one_hot = torch.nn.functional.one_hot(states, count)
        often = one_hot.sum(0).clamp(min=1)
        found: dict[str, Tensor] = {}
        for site, x in column.items():
            weights = (one_hot / often).to(x)
            found[site] = weights.T @ x
        return Means(found)

    def shift(self, site: str, base: Tensor, source: Tensor) -> Tensor:
        """[k, n, d] from the states `base` [n] to the states `source` [n]."""
        means = self.of[site]
        return means[:, source.to(means.device)] - means[:, base.to(means.device)]


def nearest_held(column: Column, others: Column) -> Column:
    """[k, n, d] a site: of what the others hold, all sites together, what is nearest; each site counts alike."""
    distance = torch.zeros(())
    for site, x in column.items():
        spread = others[site].std(1, keepdim=True).square().sum(-1, keepdim=True)
        far = torch.cdist(x, others[site]).square()
        distance = distance.to(far) + far / torch.where(spread > 0, spread, 1.0)
    near = torch.nan_to_num(distance, float("inf")).argmin(-1, keepdim=True)
    return {site: x.gather(1, near.expand(-1, -1, x.shape[-1])) for site, x in others.items()}


def answers_after(members: Members, batch: Batch, position: int, written: Mapping[str, Tensor] | None = None) -> Tensor:
    """[k, n, t] the token each model answers at every position, when `written` [k, n, d] takes the place of what is at
    each of the sites: in the stream at a position, in a state after it."""
    found: list[Tensor] = []
    with members.evaluating():
        for rows, part in chunks(members, batch):
            own = {site: x[:, rows].to(part.tokens.device) for site, x in (written or {}).items()}
            found.append(logits_after(members, part.tokens, position, own).argmax(-1).cpu())
    return torch.cat(found, 1)


def logits_after(members: Members, tokens: Tensor, position: int, written: Mapping[str, Tensor]) -> Tensor:
    """[k, n, t, v] the same as logits, all at once, and such that gradients reach what is written."""
    names = list(written)

    def program(model: Model, tokens: Tensor, *own: Tensor) -> Tensor:
        return _run(model, tokens, position, dict(zip(names, own, strict=True)))

    return members.map(program, tokens.expand(len(members), *tokens.shape), *written.values())


def _run(model: Model, tokens: Tensor, position: int, written: Mapping[str, Tensor]) -> Tensor:
    """Logits [b, t, v] with `written` [b, d] in place of what is there."""
    here = torch.arange(tokens.shape[1], device=tokens.device)[:, None] == position
    if not any(is_state(site) for site in written):
        with edit(model, {site: lambda x, new=new: _with(x, new, here) for site, new in written.items()}):
            return model(tokens)
    stream, last = model.embed_tokens(tokens), model.boundaries()[-1]
    for i, block in enumerate(model.layers()):
        stream = _with(stream, written.get(f"blocks.{i}.resid_pre"), here)
        new = written.get(f"blocks.{i}.{STATE}")
        if new is None:
            stream = block(stream)
            continue
        x = block.resid_pre(stream)

        def change(at: int, state: Tensor, new: Tensor = new) -> Tensor:
            return new if at == position else state

        mixed = run_changing_states(block.mixer, block.mixer_in(block.mixer_input(x)), change)
        stream = block.finish(block.add(x, block.mixer_out(mixed)))
    return model.read_out(_with(stream, written.get(last), here))


def _with(x: Tensor, new: Tensor | None, here: Tensor) -> Tensor:
    return x if new is None else torch.where(here, new[:, None], x)

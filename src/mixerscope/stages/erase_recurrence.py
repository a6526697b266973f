"""Erasing a label inside a recurrence: out of the state after every step, so that no later step can read it there.

States have up to tens of thousands of numbers. What is taken out is the span of the means of the label's classes; what
is left is looked for in a random projection of the state.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.interventions.members import Members
from mixerscope.interventions.states import STATE, held_places, read_states, run_changing_states
from mixerscope.interventions.tagging import LARGEST_CHUNK, chunks
from mixerscope.model import Model, layers_of
from mixerscope.probing.ridge import Parts, axes_of, fit_probes, moments
from mixerscope.randomness import stream
from mixerscope.sites import record
from mixerscope.stages.vectors import Vectors
from mixerscope.tasks import Batch
from mixerscope.training.objective import answer_correct

SEEN = 256
"""Numbers of the random projection in which a probe looks for what is left."""
STATE_BYTES = 1 << 30
"""Of states, after every position, that are in memory together."""
METHOD = "class means, every step"


@dataclass(frozen=True)
class Inside:
    """An erasure inside one mixer's recurrence."""

    layer: int
    mean: Tensor
    """[k, s]"""
    basis: Tensor
    """[k, s, r] orthonormal."""

    @property
    def ranks(self) -> list[int]:
        return (self.basis.square().sum(1) > 0.5).sum(-1).tolist()

    def right(self, members: Members, batch: Batch, only: int | None = None) -> Tensor:
        """[k, n, t] whether answers are right when it is erased after every step, or after one position only."""
        found: list[Tensor] = []
        first = members.first
        assert first.width is not None  # foreign models hold no states that are known
        like = self.mean.new_zeros(1, batch.tokens.shape[1], first.width)
        with torch.no_grad():
            places = held_places(layers_of(first)[self.layer].mixer, like, self.mean.shape[1])

        def program(model: Model, tokens: Tensor, targets: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
            x = model.embed_tokens(tokens)
            for i, block in enumerate(model.layers()):
                if i != self.layer:
                    x = block(x)
                    continue
                x = block.resid_pre(x)
                seen = block.mixer_in(block.mixer_input(x))
                mixed = run_changing_states(
                    block.mixer,
                    seen,
                    lambda at, state: _without(state, mean, basis, places[at]) if only in (None, at) else state,
                )
                x = block.finish(block.add(x, block.mixer_out(mixed)))
            return answer_correct(model.read_out(x), targets.clamp(min=0)) & (targets >= 0)

        with members.evaluating():
            for _, part in chunks(members, batch):
                again = [tensor.expand(len(members), *tensor.shape) for tensor in (part.tokens, part.targets)]
                found.append(members.map(program, *again, self.mean, self.basis).cpu())
        return torch.cat(found, 1)


def _without(state: Tensor, mean: Tensor, basis: Tensor, places: Tensor) -> Tensor:
    """A state [n, s] without its part along the basis; early ones have fewer numbers than later ones, those at the
    places."""
    mean, basis = mean[places], basis[places]
    return state - (state - mean) @ basis @ basis.mT


def erase_inside(
    members: Members, site: str, drawn: Vectors, label: Tensor, erased: Mapping[str, Tensor]
) -> tuple[list[float], dict[str, tuple[Inside, list[float], list[float] | None]]]:
    """What a probe reads of a label [m] in each model at a state site; and the erasure of each of several labels, with
    what a fresh probe reads of the first one after it: fitted to the documents that the erasure was found in, and to
    others, if there are any."""
    layer, each = int(site.split(".")[1]), drawn.positions.shape[1]
    one_hot = [F.one_hot(one).float() * drawn.parts.fit[:, None] for one in erased.values()]
    classes = [columns.shape[1] for columns in one_hot]
    weights = torch.cat([columns / columns.sum(0).clamp(min=1) for columns in one_hot], 1).view(-1, each, sum(classes))
    means = _over(
        members, site, drawn, lambda states, own: torch.einsum("npc,nps->cs", own.to(states), states), weights
    ).sum(1)
    insides = [_span_of(layer, own) for own in torch.nan_to_num(means, 0.0, 0.0, 0.0).split(classes, 1)]
    size = means.shape[-1]
    rng = stream(0, "projection of states", str(size))
    seen = torch.randn(size, SEEN, generator=rng).to(means) / size**0.5 if size > SEEN else None
    looks = [inside.basis for inside in insides]
    # All at once: taking the steps again takes longest.
    look = torch.cat([*([] if seen is None else [seen.expand(len(means), -1, -1)]), *looks], -1)
    reads = _over(
        members,
        site,
        drawn,
        lambda x, own, look: torch.cat([x, x @ look], -1) if seen is None else x @ look,
        None,
        look,
    )
    before, *along = reads.flatten(1, 2).split([min(size, SEEN), *(basis.shape[-1] for basis in looks)], -1)
    parts, unseen, label = drawn.parts.to(reads.device), drawn.unseen.to(reads.device), label.to(reads.device)

    def told(x: Tensor, parts: Parts) -> list[float]:
        found = moments(torch.nan_to_num(x.double(), 0.0, 0.0, 0.0), parts)
        return fit_probes(found, {"": label}, parts)[""].accuracy.tolist()

    found: dict[str, tuple[Inside, list[float], list[float] | None]] = {}
    for name, inside, part in zip(erased, insides, along, strict=True):
        basis, mean = inside.basis, inside.mean[:, None]
        back = basis.mT if seen is None else basis.mT @ seen
        left = before - (part - mean @ basis) @ back
        found[name] = inside, told(left, parts), told(left, unseen) if unseen.usable else None
    return told(before, parts), found


def _span_of(layer: int, means: Tensor) -> Inside:
    """Of the means of classes [k, c, s]."""
    mean = means.mean(1, keepdim=True)
    basis = axes_of((means - mean).mT.double())[0][..., : max(1, means.shape[1] - 1)].to(means)
    return Inside(layer, mean[:, 0], basis)


def _documents(members: Members, layer: int, drawn: Vectors) -> int:
    """How many, whose states after every position fit into memory together."""
    model, length = members.first, drawn.batch.tokens.shape[1]
    numbers = len(members) * length * layers_of(model)[layer].mixer.state_size(length)
    return min(LARGEST_CHUNK, max(1, STATE_BYTES // (numbers * torch.float32.itemsize)))


def _over(members: Members, site: str, drawn: Vectors, reduce, weights: Tensor | None, *own: Tensor) -> Tensor:  # noqa: ANN001
    """What `reduce` makes of the states [n, p, s] of some documents at a time: [k, ...], one after the other."""
    layer = int(site.split(".")[1])
    given = site.replace(STATE, "mixer_in")
    found: list[Tensor] = []

    def program(model: Model, tokens: Tensor, at: Tensor, mine: Tensor, *own: Tensor) -> Tensor:
        with record(model, [given]) as seen:
            model(tokens)
        states = read_states(model.layers()[layer].mixer, seen[given])
        states = states.gather(1, at.unsqueeze(-1).expand(*at.shape, states.shape[-1]))
        return reduce(states, mine, *own)

    with members.evaluating():
        for rows, part in chunks(members, drawn.batch, _documents(members, layer, drawn)):
            at = drawn.positions[rows].to(part.tokens.device)
            mine = torch.zeros(len(at), device=at.device) if weights is None else weights[rows].to(at.device)
            again = [tensor.expand(len(members), *tensor.shape) for tensor in (part.tokens, at, mine)]
            one = members.map(program, *again, *own)
            found.append(one if weights is None else one[:, None])
    return torch.cat(found, 1)

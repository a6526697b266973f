"""What heads attend to, and how large states grow: measured where the model is at hand, so that a page needs none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from mixerscope.analysis import mean_estimate
from mixerscope.analysis.stats import likelihood_estimate
from mixerscope.artifacts import Artifact, Attended, Estimate, Held, Patterns
from mixerscope.interventions.members import Members
from mixerscope.interventions.states import read_states
from mixerscope.interventions.tagging import chunks
from mixerscope.interventions.transplant import held_states
from mixerscope.model import Model, layers_of
from mixerscope.randomness import stream
from mixerscope.sites import named_sites, record
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Result, Stage, StageProgress, Trained
from mixerscope.tasks import Batch

PATTERN = "mixer.pattern"
"""Name, within its block, of the site that holds attention weights: [document, looking, head, seen]."""
CHUNK = 64
"""Documents at once: a pattern has a number for every two positions of each."""
DIGITS = 4
NEITHER = "no mixer of this model has an attention pattern, or a state of one size"


class RecordPatterns(Stage):
    """On how many documents, and how much is kept of the one that is shown."""

    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Patterns,)

    documents: PositiveInt = 320
    """As many as patching measures, and then the same ones."""
    positions: PositiveInt = 64
    """Of longer documents only the positions that have a role are shown looking back."""

    def batch(self, spec: RunSpec) -> Batch:
        """The documents, the same for all members of a cohort."""
        return spec.task.single_query().sample(self.documents, stream(spec.data_seed, "pairs"), "test")

    def run(self, trained: Trained) -> list[Result]:
        members = Members(trained.models)
        first = members.first
        sites = named_sites(first)
        patterns = [i for i in range(len(layers_of(first))) if f"blocks.{i}.{PATTERN}" in sites]
        states = [int(site.split(".")[1]) for site in held_states(first)]
        batch = self.batch(trained.first)
        seen = _look(members, batch, patterns, states, trained.progress)
        return [self._result(trained.first, batch, first, seen, member) for member in range(len(members))]

    def _result(self, spec: RunSpec, batch: Batch, model: nn.Module, seen: "_Seen", member: int) -> Result:
        end = int(batch.scored()[0][0].max()) + 1
        tokens = tuple(spec.task.symbol(int(token)) for token in batch.tokens[0, :end])
        roles = {name: int(at[0]) for name, at in batch.roles.items() if int(at[0]) < end}
        looking = tuple(range(end)) if end <= self.positions else tuple(sorted(set(roles.values())))
        attention = [
            Attended(
                block,
                head,
                tuple(_rounded(seen.example[block][member, at, head, : at + 1]) for at in looking),
                _between(seen.weights[block][member, :, head], batch),
            )
            for block in seen.weights
            for head in range(seen.weights[block].shape[2])
        ]
        states = [
            Held(
                block,
                layers_of(model)[block].mixer.state_size(end),
                _rounded(norms[member, 0, :end]),
                {name: mean_estimate(_at(norms[member], at)) for name, at in batch.roles.items()},
            )
            for block, norms in seen.norms.items()
        ]
        found = Patterns(tokens, roles, looking, len(batch), tuple(attention), tuple(states))
        return Done((found,), () if attention or states else (NEITHER,), batch.sha256())


@dataclass
class _Seen:
    """What flows through the models, by block."""

    example: dict[int, Tensor] = field(default_factory=dict)
    """[k, t, h, t] of the first document."""
    weights: dict[int, Tensor] = field(default_factory=dict)
    """[k, n, h, r, r]: looking role, seen role."""
    norms: dict[int, Tensor] = field(default_factory=dict)
    """[k, n, t]"""


def _look(
    members: Members, batch: Batch, patterns: Sequence[int], states: Sequence[int], progress: StageProgress
) -> _Seen:
    sites = [*(f"blocks.{i}.{PATTERN}" for i in patterns), *(f"blocks.{i}.mixer_in" for i in states)]

    def program(model: Model, tokens: Tensor) -> list[Tensor]:
        with record(model, sites) as seen:
            model(tokens)
        read = [read_states(model.layers()[i].mixer, seen[f"blocks.{i}.mixer_in"]).norm(dim=-1) for i in states]
        return [*(seen[site] for site in sites[: len(patterns)]), *read]

    places = torch.stack(list(batch.roles.values()), 1)  # [n, r]
    found, parts = _Seen(), [[] for _ in sites]
    with members.evaluating():
        for rows, part in chunks(members, batch, CHUNK):
            again = part.tokens.expand(len(members), *part.tokens.shape)
            given = [x.cpu() for x in members.map(program, again)]
            for i, pattern in zip(patterns, given, strict=False):
                found.example.setdefault(i, pattern[:, 0].clone())
            at = places[rows]
            document = torch.arange(len(at))[:, None, None]
            for own, x in zip(parts, given, strict=True):
                # advanced indices around a slice put what they index first: [n, r, r, k, h]
                own.append(x[:, document, at[:, :, None], :, at[:, None]].permute(3, 0, 4, 1, 2) if x.dim() == 5 else x)
            progress(rows.stop, len(batch))
    joined = [torch.cat(own, 1) for own in parts]
    found.weights = dict(zip(patterns, joined, strict=False))
    found.norms = dict(zip(states, joined[len(patterns) :], strict=True))
    return found


def _between(weights: Tensor, batch: Batch) -> dict[str, dict[str, Estimate]]:
    """Of [n, r, r]: the mean over documents in which the looking role does not stand before the seen one."""
    found: dict[str, dict[str, Estimate]] = {}
    for i, (looking, from_here) in enumerate(batch.roles.items()):
        for j, (role, there) in enumerate(batch.roles.items()):
            if bool((reached := from_here >= there).any()):
                found.setdefault(looking, {})[role] = likelihood_estimate(weights[reached, i, j])
    return found


def _at(norms: Tensor, positions: Tensor) -> Tensor:
    return norms.gather(1, positions[:, None])[:, 0]


def _rounded(values: Tensor) -> tuple[float, ...]:
    return tuple(round(value, DIGITS) for value in values.tolist())

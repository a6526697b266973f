"""Path patching: what one site tells another directly, and what that does to the answer.

The sender receives the other document's activation. Every mixer and MLP between sender and receiver gives what it
gives without the edit, so that only the direct path is left: the residual stream, and the rest of the component the
sender stands in. What then arrives at the receiver is written into a run that is otherwise unedited, and the answer is
read there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mixerscope.artifacts.base import Frames
from mixerscope.artifacts.effects import DIRECTIONS, SHARE, Direction
from mixerscope.artifacts.self_test import SelfTest
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.cache import evaluating
from mixerscope.interventions.effects import Distribution, Effects, counterfactual_or_runner_up
from mixerscope.interventions.engine import Measured, join_chunks
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import editable_sites
from mixerscope.interventions.resume import pick, split_site, swap
from mixerscope.interventions.selftest import self_test
from mixerscope.model import Model
from mixerscope.showing import counted
from mixerscope.sites import Tap, edit, named_sites, record

NOT_REACHED = "the edit of the sender does not reach the receiver"
BEFORE = "the receiver comes before the sender"


@dataclass(frozen=True, order=True)
class Edge:
    """From one site and role to another; slot and direction as in `Cell`."""

    slot: str
    direction: Direction
    sender: str
    sender_role: str
    receiver: str
    receiver_role: str


@dataclass(frozen=True, repr=False)
class PathGrid(Frames):
    """The outcome of some edges: per edge and document, beside the unedited runs."""

    pairs: Pairs
    original: Effects
    corrupted: Mapping[str, Effects]
    edges: Mapping[Edge, Measured]
    self_test: SelfTest

    def sentence(self) -> str:
        """One line for people."""
        return f"{counted(len(self.edges), 'edge')}, {counted(len(self.pairs), 'document')}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per edge and metric."""
        from mixerscope.interventions.table import edge_rows  # it makes tables of grids

        return edge_rows(self)

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        return (row for row in self.rows() if row["metric"] == SHARE)


def patch_paths(model: Model, pairs: Pairs, edges: Iterable[Edge], batch_documents: int = 64) -> PathGrid:
    """Measures the direct effect along every edge, after the self-test of all sites it needs."""
    edges = list(edges)
    if len(pairs.reads) > 1:
        raise UserError(f"path patching measures one read, not {', '.join(pairs.reads.names)}")
    _check(model, pairs, edges)
    here = pairs.to(device_of(model))
    with evaluating(model), torch.inference_mode():
        ends = {edge.sender for edge in edges} | {edge.receiver for edge in edges}
        tested = self_test(model, here, sorted(ends | set(_outputs(model))))
        order = firing_order(model, here.original.tokens[:1])
        parts: dict[Edge | str, list[Measured]] = defaultdict(list)
        for chunk in here.chunks(batch_documents):
            for key, measured in _measure(model, chunk, edges, order):
                parts[key].append(replace(measured, effects=measured.effects.cpu()))
    found = join_chunks(parts)
    corrupted = {slot: found[f"corrupted {slot}"].effects for slot in pairs.corrupted}
    return PathGrid(pairs, found["original"].effects, corrupted, {edge: found[edge] for edge in edges}, tested)


def _check(model: Model, pairs: Pairs, edges: list[Edge]) -> None:
    known = editable_sites(model)
    for edge in edges:
        for site in (edge.sender, edge.receiver):
            if site not in known:
                raise UnknownName("site", site, known)
        if edge.slot not in pairs.corrupted:
            raise UnknownName("slot", edge.slot, pairs.corrupted)
        if edge.direction not in DIRECTIONS:
            raise UserError(f"direction must be one of {', '.join(DIRECTIONS)}, not {edge.direction!r}")
        for role in (edge.sender_role, edge.receiver_role):
            pairs.places(role)


def firing_order(model: nn.Module, tokens: Tensor) -> list[str]:
    """The sites in the order in which a forward pass goes through them."""
    order: list[str] = []

    def note(name: str) -> Tap:
        def tap(x: Tensor) -> Tensor:
            order.append(name)
            return x

        return tap

    with edit(model, {name: note(name) for name in named_sites(model)}):
        model(tokens)
    return order


def frozen_between(sender: str, receiver: str, order: list[str]) -> list[str]:
    """Outputs of mixers and MLPs that come between the two and are not the sender's own."""
    between = order[order.index(sender) + 1 : order.index(receiver)]
    layer, name = split_site(sender)
    inside_mixer = name.startswith("mixer.") or name in ("mixer_in", "short_conv_out")
    own = f"blocks.{layer}.{'mixer_out' if inside_mixer else 'mlp_out' if name == 'mlp_in' else ''}"
    return [site for site in between if site.endswith((".mixer_out", ".mlp_out")) and site != own]


def _outputs(model: Model) -> list[str]:
    return [site for site in named_sites(model) if site.endswith((".mixer_out", ".mlp_out"))]


def _measure(model: Model, pairs: Pairs, edges: list[Edge], order: list[str]) -> list[tuple[Edge | str, Measured]]:
    """All edges over one chunk of documents, and the unedited runs under 'original' and 'corrupted <slot>'."""
    read, answers = pairs.reads.positions[:, 0], pairs.reads.targets[:, 0]
    others = {slot: symbols[:, 0] for slot, symbols in pairs.reads.others.items()}
    sites = sorted({edge.sender for edge in edges} | {edge.receiver for edge in edges} | set(_outputs(model)))

    def run(tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with record(model, sites) as cache:
            logits = model(tokens, read[:, None])[:, 0]
        return logits, cache

    original = pairs.original.tokens, *run(pairs.original.tokens)
    found: list[tuple[Edge | str, Measured]] = [("original", Measured(Effects.of(original[1], answers)))]
    for slot, batch in pairs.corrupted.items():
        corrupted = batch.tokens, *run(batch.tokens)
        counterfactuals = counterfactual_or_runner_up(others.get(slot), corrupted[1], answers)
        found.append((f"corrupted {slot}", Measured(Effects.of(corrupted[1], answers, counterfactuals))))
        for direction, base, source in (("restore", corrupted, original), ("break", original, corrupted)):
            tokens, plain, cache = base
            for edge in edges:
                if (edge.slot, edge.direction) != (slot, direction):
                    continue
                unedited = Effects.of(plain, answers, counterfactuals)
                if order.index(edge.receiver) < order.index(edge.sender):
                    found.append((edge, Measured(unedited, "no path", BEFORE)))
                    continue
                arrived = _arrives(model, tokens, edge, pairs, cache, source[2], order)
                places = pairs.places(edge.receiver_role)
                if torch.equal(arrived, pick(cache[edge.receiver], places)):
                    found.append((edge, Measured(unedited, "no path", NOT_REACHED)))
                    continue
                with edit(model, {edge.receiver: lambda x, at=places, value=arrived: swap(x, at, value)}):
                    logits = model(tokens, read[:, None])[:, 0]
                effects = Effects.of(logits, answers, counterfactuals, Distribution.of(plain))
                found.append((edge, Measured(effects)))
    return found


def _arrives(
    model: Model,
    tokens: Tensor,
    edge: Edge,
    pairs: Pairs,
    base: Mapping[str, Tensor],
    source: Mapping[str, Tensor],
    order: list[str],
) -> Tensor:
    """[n, p, ...] what the receiver holds when the sender is edited and what lies between is frozen."""
    at = pairs.places(edge.sender_role)
    frozen: dict[str, Tap] = {
        site: lambda x, kept=base[site]: kept for site in frozen_between(edge.sender, edge.receiver, order)
    }
    frozen[edge.sender] = lambda x: swap(x, at, pick(source[edge.sender], at))
    with edit(model, frozen), record(model, [edge.receiver]) as seen:
        model(tokens, at[:, :1])
    return pick(seen[edge.receiver], pairs.places(edge.receiver_role))

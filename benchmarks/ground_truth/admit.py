"""Whether a trained model may count as ground truth: measured by code and on documents that no verdict uses.

Counterfactuals come from the task itself, activations are moved with `record` and `edit`, and where a route holds a
changed token is worked out from the tokens; nothing here is shared with training but the names of the routes.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from benchmarks.ground_truth.collection import known
from benchmarks.ground_truth.routes import FIRST_SYMBOL, Route, even_key, routes_of
from mixerscope import AR, Batch, Model, edit, record
from mixerscope.errors import UserError
from mixerscope.randomness import stream

BETWEEN = "blocks.1.resid_pre"
"""The site between the two blocks."""
DOCUMENTS = 1000
SEED = 20_014
"""Of the documents; neither training nor any verdict has it."""
ACCURACY, INTERCHANGE, OFF_ROUTE = 0.99, 0.95, 0.05
FROM_KEY = {"key": 0, "value": 1, "next_key": 2}
"""Positions from a key to the roles of its pair."""


@dataclass(frozen=True)
class Admission:
    """What was measured of one model."""

    accuracy: float
    """On documents as they are drawn."""
    interchange: float
    """Share of mixed runs that answer as the document at the carriers does; the smallest over all changes, both
    directions, and both halves of a mixture."""
    broken: float
    """Share of the answer's likelihood that goes when the carriers alone are from the other document, relative to what
    goes when everything is; the smallest over all changes and halves."""
    off_route: float
    """Share of the answer's likelihood that goes when all but the carriers is from the other document; the largest."""
    single: float
    """The same with only one role from the other document at a time, none of them a carrier; the largest."""
    details: Mapping[str, float]

    @property
    def admitted(self) -> bool:
        held = min(self.interchange, self.broken)
        return self.accuracy >= ACCURACY and held >= INTERCHANGE and max(self.off_route, self.single) <= OFF_ROUTE

    def numbers(self) -> dict[str, float]:
        """Rounded, without the details."""
        return {name: round(value, 4) for name, value in asdict(self).items() if name != "details"}


def admission(model: Model, task: AR, route: str, documents: int = DOCUMENTS, seed: int = SEED) -> Admission:
    """Measures whether the model solves the task by this route, and by nothing else."""
    if len(model.layers()) != 2:
        raise UserError(f"a route is what holds between two blocks, and this model has {len(model.layers())}")
    batch, device = task.sample(documents, stream(seed, "admission"), "test"), model.token_embedding.weight.device
    even, (first, second) = even_key(batch), routes_of(route)
    halves = [(first, even), (second, ~even)] if first != second else [(first, torch.ones_like(even))]
    details: dict[str, float] = {}
    for half, (one, here) in enumerate(halves):
        for change, other in _changes(task, batch[here], seed).items():
            found = _mixed_runs(model, task, batch[here].to(device), other.to(device), one)
            details |= {f"{change}, half {half}, {name}": value for name, value in found.items()}

    def all_of(name: str) -> list[float]:
        return [value for label, value in details.items() if name in label]

    batch = batch.to(device)
    accuracy = _right(_likelihoods(model, batch), batch.answers()[1]).double().mean().item()
    return Admission(
        accuracy,
        interchange=min(all_of("interchange")),
        broken=min(all_of("broken")),
        off_route=max(all_of("off route")),
        single=max(all_of("alone")),
        details=details,
    )


def _changes(task: AR, batch: Batch, seed: int) -> dict[str, Batch]:
    """By name: the same documents with two keys exchanged, with another value, without the asked key."""
    made = {kind: task.counterfactual(kind, batch, stream(seed, kind)) for kind in ("swap-keys", "value")}
    absent = task.corrupt(batch, "key", stream(seed, "absent"), "slot-class", avoid_present=True)
    return {**made, "absent": absent}


def _mixed_runs(model: Model, task: AR, a: Batch, b: Batch, route: Route) -> dict[str, float]:
    """One change, one route: interchange accuracy in both directions, and what the rest of the boundary does."""
    carriers = carrier_mask(task, a, b, route)
    (answers_a, answers_b), answerable = (a.answers()[1], b.answers()[1]), not torch.equal(a.targets, b.targets)
    with record(model, [BETWEEN]) as of_a:
        p_a = _likelihoods(model, a)
    with record(model, [BETWEEN]) as of_b:
        p_b = _likelihoods(model, b)

    def mixed(base: Batch, source: Tensor, where: Tensor) -> Tensor:
        with edit(model, {BETWEEN: lambda x: torch.where(where[:, :, None], source, x)}):
            return _likelihoods(model, base)

    found = {"interchange from a": _right(mixed(b, of_a[BETWEEN], carriers), answers_a).double().mean().item()}
    broken = mixed(a, of_b[BETWEEN], carriers)
    if answerable:
        found["interchange from b"] = _right(broken, answers_b).double().mean().item()

    def lost(p: Tensor) -> float:
        clean, all_changed = (_at(q, answers_a).mean() for q in (p_a, p_b))
        return ((clean - _at(p, answers_a).mean()) / (clean - all_changed)).item()

    found["broken"] = lost(broken)
    found["off route"] = abs(lost(mixed(a, of_b[BETWEEN], ~carriers)))
    for role, at in a.roles.items():
        here = torch.zeros_like(carriers).scatter(1, at[:, None], True) & ~carriers
        found[f"{role} alone"] = abs(lost(mixed(a, of_b[BETWEEN], here)))
    return found


def carrier_mask(task: AR, a: Batch, b: Batch, route: Route) -> Tensor:
    """[n, t] where the route holds, between the blocks, what the documents differ in."""
    position = torch.arange(a.tokens.shape[1], device=a.tokens.device)
    changed = (a.tokens != b.tokens) & (position < a.role("divider")[:, None])
    is_key = a.tokens < FIRST_SYMBOL + task.num_keys
    mask = torch.zeros_like(changed)
    for role, here, start in ((route.key, changed & is_key, "key"), (route.value, changed & ~is_key, "value")):
        if role in FROM_KEY:
            mask |= here.roll(FROM_KEY[role] - FROM_KEY[start], 1)
        else:
            mask |= here.any(1, keepdim=True) & (position == a.role(role)[:, None])
    return mask


@torch.no_grad()
def _likelihoods(model: Model, batch: Batch) -> Tensor:
    """[n, v] of what follows the query."""
    return model(batch.tokens, batch.role("query")[:, None])[:, 0].softmax(-1)


def _at(p: Tensor, tokens: Tensor) -> Tensor:
    return p.gather(1, tokens[:, None])[:, 0]


def _right(p: Tensor, answers: Tensor) -> Tensor:
    return p.argmax(-1) == answers


def main() -> None:
    """Measures all that is kept once more, here: `python -m benchmarks.ground_truth.admit`."""
    models = known()
    refused = 0
    for one in models:
        found = admission(one.model(), one.task, one.route)
        refused += not found.admitted
        print(f"{one.id}  {one.architecture}, {one.route}: {found.numbers()}", flush=True)
    print(f"admitted: {len(models) - refused} of {len(models)}")
    sys.exit(bool(refused))


if __name__ == "__main__":
    main()

"""Where a method says the information is, against where it was trained to be.

At the boundary between the blocks, a slot (key, value) and a role make a cell. Each method gives every cell a score:
exact patching the share that restoring it brings back, attribution patching its estimate of that, and chance a random
number. The cells of the declared route should score highest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.ground_truth.admit import BETWEEN
from benchmarks.ground_truth.routes import ROUTES
from mixerscope import Cell, Model, PairSettings, attribution_patching, edit, interchange, make_pairs, record
from mixerscope.interventions import Pairs
from mixerscope.randomness import stream
from mixerscope.tasks import Task

SLOTS = ("key", "value")
ROLES = ("key", "value", "next_key", "divider", "query")
METHODS = ("exact patching", "attribution patching", "chance")
DOCUMENTS = 320

Scores = Mapping[tuple[str, str], float]
"""By slot and role."""


@dataclass(frozen=True)
class Faithfulness:
    """How much of the answer is kept when only the best k cells of a slot keep the clean activation."""

    curve: tuple[float, ...]
    """For k = 0 to all, mean over slots: 0 is the corrupted run, 1 the clean one."""

    @property
    def cpr(self) -> float:
        """Area under the curve, k from none to all being an interval of length one: large where few cells suffice."""
        return _area(self.curve)

    @property
    def cmd(self) -> float:
        """Area between the curve and 1: small where few cells do what the whole model does, neither less nor more."""
        return _area([abs(1 - value) for value in self.curve])


def pairs_of(task: Task, seed: int = 0) -> Pairs:
    """Clean and corrupted documents, every symbol replaced by an absent one of its own class."""
    settings = PairSettings(documents=DOCUMENTS, slots=SLOTS, symbols="slot-class", avoid_present=True)
    return make_pairs(task, settings, seed)


def scores(model: Model, pairs: Pairs, seed: int = 0) -> dict[str, Scores]:
    """What each method says of each cell."""
    plan = {(slot, role): Cell(slot, "restore", BETWEEN, role) for slot in SLOTS for role in ROLES}
    grid = interchange(model, pairs, list(plan.values()))
    estimate = attribution_patching(model, pairs, list(plan.values()))
    exact: dict[tuple[str, str], float] = {}
    for (slot, role), cell in plan.items():
        before = grid.corrupted[slot].likelihood
        exact[slot, role] = (grid.cells[cell].effects.likelihood - before).mean().item()
    guessed = {key: estimate.cells[cell].mean().item() for key, cell in plan.items()}
    chance = torch.rand(len(plan), generator=stream(seed, "chance")).tolist()
    return dict(zip(METHODS, (exact, guessed, dict(zip(plan, chance, strict=True))), strict=True))


def declared(route: str) -> dict[tuple[str, str], bool]:
    """Which cells are on a route."""
    places = {"key": ROUTES[route].key, "value": ROUTES[route].value}
    return {(slot, role): places[slot] == role for slot in SLOTS for role in ROLES}


def auroc(scored: Sequence[tuple[float, bool]]) -> float:
    """Chance that a cell on the route scores higher than one that is not; ties count half."""
    on = torch.tensor([score for score, here in scored if here], dtype=torch.float64)[:, None]
    off = torch.tensor([score for score, here in scored if not here], dtype=torch.float64)
    return ((on > off).double() + 0.5 * (on == off).double()).mean().item()


@torch.no_grad()
def faithfulness(model: Model, pairs: Pairs, ranked: Scores) -> Faithfulness:
    """The curve of a method: roles in the order of their scores are restored one more at a time, all else is corrupted.

    After the last role comes all that has no role, so that the curve ends with the clean run.
    """
    curves: list[list[float]] = []
    read, answers = pairs.original.answers()

    def answered(tokens: Tensor) -> float:
        p = model(tokens, read[:, None])[:, 0].softmax(-1)
        return p.gather(1, answers[:, None]).mean().item()

    with record(model, [BETWEEN]) as clean:
        full = answered(pairs.original.tokens)
    for slot in SLOTS:
        tokens = pairs.corrupted[slot].tokens
        kept = torch.zeros_like(tokens, dtype=torch.bool)
        empty, curve = answered(tokens), [0.0]
        for role in [*sorted(ROLES, key=lambda role: -ranked[slot, role]), None]:
            kept = torch.ones_like(kept) if role is None else kept.scatter(1, pairs.places(role), True)
            with edit(model, {BETWEEN: lambda x, kept=kept: torch.where(kept[:, :, None], clean[BETWEEN], x)}):
                curve.append((answered(tokens) - empty) / (full - empty))
        curves.append(curve)
    return Faithfulness(tuple(sum(values) / len(values) for values in zip(*curves, strict=True)))


def _area(values: Sequence[float]) -> float:
    inner = sum(values[1:-1]) + (values[0] + values[-1]) / 2
    return inner / (len(values) - 1)

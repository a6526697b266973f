"""What is trained: architectures, routes, seeds, and how."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.ground_truth.objective import ByRoute
from benchmarks.ground_truth.routes import MIXED, ROUTES
from mixerscope import AR, RunSpec

TASK = AR(num_pairs=4, num_keys=8, num_values=8)
SEEDS = (0, 1, 2)
MIXTURES = ("induction / one step later", "induction / direct, first block", "direct, first block / direct, last block")
WIDE = 48
"""Width of recurrences, which may be able to put a summary of all pairs into one position."""
FIRST = 5
"""Architectures that come before the others."""


@dataclass(frozen=True)
class Learner:
    """An architecture and how it is trained."""

    architecture: str
    rates: tuple[float, ...]
    """Learning rates: each is tried with every seed, and the better one counts."""
    width: int = 32
    """Of the residual stream, the same for every route: a challenger must not read the answer off it."""
    options: dict[str, Any] = field(default_factory=dict)


LEARNERS = {
    "attention": Learner("attention", (3e-3, 1e-3)),
    "based": Learner("based", (5e-3, 2e-3)),
    "mamba": Learner("mamba", (4e-3, 1e-2), WIDE),
    "deltanet": Learner("deltanet", (3e-3, 1e-3), WIDE),
    "convolution-attention": Learner(
        "pattern", (3e-3, 1e-3), options={"layers": [{"mixer": "attention", "short_conv": 4}]}
    ),
    "attention-8-heads": Learner("attention", (2e-3, 1e-3), 64, {"heads": 8}),
    "mamba2": Learner("mamba2", (4e-3, 1e-2), WIDE, options={"d_state": 16}),
    "gated_deltanet": Learner("gated_deltanet", (3e-3, 1e-3), WIDE),
    "rwkv7": Learner("rwkv7", (3e-3, 1e-3), WIDE),
    "gla": Learner("gla", (5e-3, 2e-3)),
    "retnet": Learner("retnet", (5e-3, 2e-3)),
    "h3": Learner("h3", (5e-3, 2e-3), options={"d_state": 64}),
    "hyena": Learner("hyena", (5e-3, 2e-3), options={"filter_length": 16}),
    "base_conv": Learner("base_conv", (5e-3, 2e-3), options={"filter_length": 16}),
    "linear_attention": Learner("linear_attention", (5e-3, 2e-3)),
    "window-attention": Learner(
        "pattern",
        (3e-3, 1e-3),
        options={"layers": [{"mixer": "sliding_window", "options": {"window": 3}}, {"mixer": "attention"}]},
    ),
    "lstm": Learner("lstm", (1e-2, 3e-3), WIDE),
    "gru": Learner("gru", (1e-2, 3e-3), WIDE),
}


@dataclass(frozen=True)
class Size:
    """How long training takes, and how much the mixed runs count in it."""

    steps: int = 3000
    batch: int = 128
    rates: int = 2
    """Learning rates tried with every seed."""
    weight: tuple[float, float] = (1.0, 4.0)


@dataclass(frozen=True)
class Cell:
    """An architecture and a route."""

    learner: str
    route: str

    @property
    def name(self) -> str:
        return f"{self.learner}--{self.route.replace(MIXED, '+').replace(', ', '-').replace(' ', '-')}"

    @property
    def is_mixture(self) -> bool:
        return MIXED in self.route

    def specs(self, size: Size, seeds: Iterable[int] = SEEDS) -> list[RunSpec]:
        """One cohort: every seed with every learning rate."""
        learner = LEARNERS[self.learner]
        model = {"architecture": learner.architecture, "width": learner.width, "options": learner.options}
        train = {
            "steps": size.steps,
            "batch_size": size.batch,
            "documents": size.steps * size.batch,  # every batch is fresh, and the objective's weights go by document
            "eval_every": size.steps,
            "objective": ByRoute(route=self.route, task=TASK, weight=size.weight),
        }
        return [
            RunSpec.model_validate(
                {
                    "task": TASK,
                    "model": {**model, "init": "small_model", "max_length": TASK.max_length},
                    "train": {**train, "lr": rate},
                    "seed": seed,
                }
            )
            for rate in learner.rates[: size.rates]
            for seed in seeds
        ]


def cells(learners: Sequence[str] = (*LEARNERS,), routes: Sequence[str] = (*ROUTES, *MIXTURES)) -> list[Cell]:
    """Mixtures last, as they need both their parts; else the first architectures with every route before the others."""
    tiers = [[name for name in learners if (name in list(LEARNERS)[:FIRST]) == first] for first in (True, False)]
    every = [Cell(name, route) for tier in tiers for route in routes for name in tier]
    return sorted(every, key=lambda cell: cell.is_mixture)

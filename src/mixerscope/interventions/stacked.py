"""K models of one shape as one: any program that uses a model, run on all of them at once."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mixerscope.model import Model


class _Running(nn.Module):
    """A module whose forward pass is any program that uses the model, so that the program can run on other weights."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, program: Callable[[Model], Any]) -> Any:
        return program(self.model)


class Stacked:
    """The weights of all models along a leading axis."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = models
        self.running = _Running(models[0])
        # By hand, since torch's own stacking refuses members of which only some are frozen.
        states = [_Running(model).state_dict() for model in models]
        self.weights = {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def map(self, program: Callable[[Model, list[Tensor]], Any], own: list[Tensor] | None = None) -> Any:
        """What the program gives for each model and its part of `own` [k, ...], along a leading axis."""

        def one(weights: dict[str, Tensor], own: list[Tensor]) -> Any:
            return functional_call(self.running, weights, (lambda model: program(model, own),))

        return torch.vmap(one, randomness="same")(self.weights, own or [])

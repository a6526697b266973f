"""One model, or K of one shape as one: any program that uses a model, run on all of them at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from mixerscope.errors import UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.cache import evaluating
from mixerscope.model import Model


class _Running(nn.Module):
    """A module whose forward pass is any program that uses the model, so that the program can run on other weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, program: Callable[..., Any], own: tuple[Any, ...]) -> Any:
        return program(self.model, *own)


class Members:
    """The models of a grid. What is theirs has them along a leading axis, also where there is one model alone."""

    def __init__(self, models: Sequence[Model | Adapted]) -> None:
        self.models = models
        if any(model.shape != models[0].shape for model in models):
            raise UserError("models of one cohort must have the same model spec")
        self._running = _Running(models[0])
        if len(models) > 1:
            # By hand, since torch's own stacking refuses members of which only some are frozen.
            states = [_Running(model).state_dict() for model in models]
            self._weights = {name: torch.stack([state[name] for state in states]) for name in states[0]}

    @property
    def first(self) -> Model | Adapted:
        """One that stands for the shape of all."""
        return self.models[0]

    def __len__(self) -> int:
        return len(self.models)

    def only(self, kept: Sequence[int]) -> "Members":
        """Those with these numbers."""
        return self if len(kept) == len(self) else Members([self.models[number] for number in kept])

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Eval mode and no gradients inside; afterwards every model is as it was."""
        with ExitStack() as stack:
            for model in self.models:
                stack.enter_context(evaluating(model))
            # Inference mode is the faster one, but not all that a stack runs is promised to work in it.
            stack.enter_context(torch.inference_mode() if len(self) == 1 else torch.no_grad())
            yield

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        """Eval mode, and gradients, inside."""
        with ExitStack() as stack:
            for model in self.models:
                stack.enter_context(evaluating(model))
            stack.enter_context(torch.enable_grad())
            yield

    def map(self, program: Callable[..., Any], *own: Any) -> Any:
        """What program(model, *own) gives for each model and its part of `own`: tensors [k, ...], also in lists,
        tuples and dictionaries.

        The program may run once for all models, on weights of which it can see no number. So it must be a function of
        what it is given: nothing it writes down elsewhere would be the finding of any one model.
        """
        if len(self) == 1:
            found = program(self.models[0], *pytree.tree_map(lambda x: x[0], own))
            return pytree.tree_map(lambda x: x[None], found)

        def one(weights: dict[str, Any], own: tuple[Any, ...]) -> Any:
            return functional_call(self._running, weights, (program, own))

        return torch.vmap(one, randomness="same")(self._weights, own)

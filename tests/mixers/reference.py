"""How a mixer is compared with the textbook: outputs and every gradient, float64."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from mixerscope.check import Subject
from mixerscope.registry import MIXERS

Reference = Callable[[Mapping[str, Tensor], Tensor], Tensor]


def assert_equals_reference(
    name: str, options: Mapping[str, Any], reference: Reference, width: int = 4, length: int = 7
) -> None:
    subject = Subject(MIXERS.load(name), name, width, options)
    mixer = subject.build(seed=3)
    x = subject.documents(2, length).requires_grad_()
    readout = subject.documents(2, length, seed=1)
    params = dict(mixer.named_parameters())
    buffers = dict(mixer.named_buffers())
    found, expected = mixer(x), reference({**params, **buffers}, x)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    inputs = [x, *params.values()]
    ours = torch.autograd.grad((found * readout).sum(), inputs)
    theirs = torch.autograd.grad((expected * readout).sum(), inputs)
    for part, a, b in zip(["input", *params], ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11, msg=lambda m, part=part: f"gradient of {part}: {m}")
        assert b.abs().max() > 1e-9, f"the comparison of {part} says nothing: its gradient is zero"


def linear(p: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """W x + b of the layer `name`, for one vector."""
    y = p[f"{name}.weight"] @ x
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def short_conv(p: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """y_t = sum_i w_i x_{t-i} + b, tap i standing at column k - 1 - i; x [t, c]."""
    weight = p[f"{name}.weight"]
    k = weight.shape[1]
    rows = []
    for t in range(len(x)):
        y = torch.zeros_like(x[0])
        for i in range(min(k, t + 1)):
            y = y + weight[:, k - 1 - i] * x[t - i]
        rows.append(y + p[f"{name}.bias"] if f"{name}.bias" in p else y)
    return torch.stack(rows)


def per_document(one: Callable[[Mapping[str, Tensor], Tensor], Tensor]) -> Reference:
    """A reference written for one document [t, d], applied to each."""
    return lambda p, x: torch.stack([one(p, document) for document in x])

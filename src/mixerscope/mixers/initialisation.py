"""Rules of initialisation that several mixers share."""

import math

import torch
from torch import Tensor, nn

DT_MIN, DT_MAX, DT_FLOOR = 1e-3, 0.1, 1e-4

RETENTION_GAIN = 2**-2.5
"""Gain of the projections in the official code of RetNet, kept by the releases of GLA and Gated DeltaNet."""


def xavier_linears(module: nn.Module, rng: torch.Generator, gain: float) -> None:
    """Every linear layer inside: weights uniform in +-gain sqrt(6 / (fan_in + fan_out)), biases zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight, gain=gain, generator=rng)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def fan_in_uniform(weight: Tensor, rng: torch.Generator) -> None:
    """Uniform in +-1/sqrt(fan_in), PyTorch's own rule for a linear layer."""
    bound = weight.shape[1] ** -0.5
    nn.init.uniform_(weight, -bound, bound, generator=rng)


@torch.no_grad()
def step_size_bias(bias: Tensor, rng: torch.Generator) -> None:
    """Biases whose softplus, the step size, is log-uniform in [0.001, 0.1] (Mamba's rule)."""
    log_dt = torch.rand(bias.shape, generator=rng) * math.log(DT_MAX / DT_MIN) + math.log(DT_MIN)
    dt = log_dt.exp().clamp(min=DT_FLOOR)
    bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # the inverse of softplus

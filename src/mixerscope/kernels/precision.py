"""How exact products of float32 numbers are to be, and how far kernels may then be off."""

import torch

TF32_TOLERANCE = 1e-2
"""Factors have ten bits there. A logit is then off by a thousandth of its size, and so is, with logits of about ten,
a probability by a hundredth: in cuBLAS as in a kernel, though never in the same direction."""


def exact_products() -> bool:
    """Whether products of float32 numbers are to be those of float32 numbers."""
    return torch.get_float32_matmul_precision() == "highest"


def tolerance_of(dtype: torch.dtype) -> float | None:
    """For an operator that is asked for less than its numbers could hold; else that of their type stands."""
    return TF32_TOLERANCE if dtype == torch.float32 and not exact_products() else None

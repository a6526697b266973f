"""Tensor cores in Triton's interpreter, which would multiply all bits of float32 numbers."""

import numpy as np
import pytest
from triton.runtime.interpreter import InterpreterBuilder


def leading_bits(numbers):
    """What they read of float32 numbers: ten bits of the fraction."""
    return (numbers.view(np.int32) & -8192).view(np.float32) if numbers.dtype == np.float32 else numbers


@pytest.fixture
def tensor_cores(monkeypatch):
    """Products that are asked for as "tf32" are of leading bits; those of others stay as they are. Notes which were."""
    seen, create = [], InterpreterBuilder.create_dot

    def create_dot(builder, a, b, d, precision, most):
        seen.append(precision.name)
        if precision.name == "TF32":
            a, b = (type(x)(leading_bits(np.ascontiguousarray(x.data)), x.dtype) for x in (a, b))
        return create(builder, a, b, d, precision, most)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
    return seen

"""The same as a Triton kernel: a program for each document, position after position."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _kernel(x, w, y, documents, length, width: tl.constexpr):
    document = tl.program_id(0)
    channel = tl.arange(0, width)
    weight = tl.load(w + document // documents * width + channel)
    total = tl.zeros((width,), tl.float32)
    for t in range(length):
        at = (document * length + t) * width + channel
        total += tl.load(x + at)
        tl.store(y + at, total * weight)


def sums(x: Tensor, w: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    models, documents, length, width = x.shape
    _kernel[(models * documents,)](x, w.contiguous(), y, documents, length, width)
    return y

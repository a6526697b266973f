"""Run where the package is installed: the operator runs its kernel, stacked, with the gradient of its definition."""

import torch
from my_lab.sums import sums

from mixerscope import kernels

rng = torch.Generator().manual_seed(0)
x, w = (torch.randn(*shape, generator=rng).requires_grad_() for shape in ((2, 3, 5, 8), (2, 8)))
found = torch.vmap(sums)(x, w)
expected = x.cumsum(2) * w[:, None, None]
torch.testing.assert_close(found, expected)
for ours, theirs in zip(
    torch.autograd.grad(found.square().sum(), (x, w)), torch.autograd.grad(expected.square().sum(), (x, w)), strict=True
):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
print(kernels.used()["my-lab/sums"])

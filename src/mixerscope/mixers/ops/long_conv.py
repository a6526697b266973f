"""Causal convolution with a kernel as long as the input, and the correlation that makes such kernels.

Up to `DIRECT_LENGTH` positions the sums are made directly, which is exact and faster than a Fourier transform at the
lengths of synthetic tasks; longer inputs go through the transform, whose cost does not grow with the square of the
length.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.mixers.ops.direct_conv import OPERATOR_LENGTH, direct_conv
from mixerscope.mixers.ops.direct_correlation import direct_correlation

DIRECT_LENGTH = OPERATOR_LENGTH


def long_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """y[b, t, c, ...] = sum_{s<=t} kernel[c, t - s] x[b, s, c, ...] for x [b, t, c, ...] and kernel [c, t]."""
    length = x.shape[1]
    if length <= DIRECT_LENGTH:
        return direct_conv(x.reshape(*x.shape[:3], -1), kernel).reshape(x.shape)
    spectrum = torch.fft.rfft(kernel, 2 * length).T  # [f, c]
    spectrum = spectrum.reshape(*spectrum.shape, *[1] * (x.dim() - 3))
    return torch.fft.irfft(torch.fft.rfft(x, 2 * length, dim=1) * spectrum, 2 * length, dim=1)[:, :length]


def with_skip(kernel: Tensor, skip: Tensor) -> Tensor:
    """The kernel [c, t] of x -> long_conv(x, kernel) + skip x, skip [c]: two passes over x less than adding it."""
    return kernel + F.pad(skip[:, None], (0, kernel.shape[1] - 1))


def long_conv_last(history: Tensor, kernel: Tensor) -> Tensor:
    """The last position of `long_conv` alone: history [b, t, c], kernel [c, t] -> [b, c]."""
    return torch.einsum("bsc,cs->bc", history, kernel.flip(1))


def correlate(b: Tensor, c: Tensor, length: int) -> Tensor:
    """The first `length` lags of a correlation: k[d, i] = sum_n b[d, n] c[d, n + i] for b, c [d, n]."""
    taps = b.shape[1]
    if length <= DIRECT_LENGTH:
        return direct_correlation(b, c, length)
    size = taps + max(taps, length)
    return torch.fft.irfft(torch.fft.rfft(b, size).conj() * torch.fft.rfft(c, size), size)[:, :length]

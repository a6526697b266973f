"""Causal convolution with a kernel as long as the input, and the correlation that makes such kernels.

Up to `DIRECT_LENGTH` positions the kernel is laid out as a triangular matrix, which is exact and faster than a Fourier
transform at the lengths of synthetic tasks; longer inputs go through the transform, whose memory does not grow with
the square of the length. The matrices are made by padding and reshaping: an index would add a scatter to the backward.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

DIRECT_LENGTH = 256


def long_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """y[b, t, c, ...] = sum_{s<=t} kernel[c, t - s] x[b, s, c, ...] for x [b, t, c, ...] and kernel [c, t]."""
    length = x.shape[1]
    if length <= DIRECT_LENGTH:
        return torch.einsum("bsc...,cst->btc...", x, _toeplitz(kernel))
    spectrum = torch.fft.rfft(kernel, 2 * length).T  # [f, c]
    spectrum = spectrum.reshape(*spectrum.shape, *[1] * (x.dim() - 3))
    return torch.fft.irfft(torch.fft.rfft(x, 2 * length, dim=1) * spectrum, 2 * length, dim=1)[:, :length]


def long_conv_last(history: Tensor, kernel: Tensor) -> Tensor:
    """The last position of `long_conv` alone: history [b, t, c], kernel [c, t] -> [b, c]."""
    return torch.einsum("bsc,cs->bc", history, kernel.flip(1))


def correlate(b: Tensor, c: Tensor, length: int) -> Tensor:
    """The first `length` lags of a correlation: k[d, i] = sum_n b[d, n] c[d, n + i] for b, c [d, n]."""
    channels, taps = b.shape
    if length > DIRECT_LENGTH:
        size = taps + max(taps, length)
        return torch.fft.irfft(torch.fft.rfft(b, size).conj() * torch.fft.rfft(c, size), size)[:, :length]
    # In blocks of `length` taps: m[r, s] = sum over blocks p of b[p, r] c[p, s], and lag i is the diagonal s = r + i.
    blocks = -(-taps // length)
    b = F.pad(b, (0, blocks * length - taps)).reshape(channels, blocks, length)
    c = F.pad(c, (0, (blocks + 1) * length - taps)).reshape(channels, blocks + 1, length)
    c = torch.cat([c[:, :-1], c[:, 1:]], 2)  # [d, p, 2 length]: a block and the one after it
    m = torch.einsum("dpr,dps->drs", b, c)
    skewed = F.pad(m.reshape(channels, -1), (0, length)).reshape(channels, length, 2 * length + 1)
    return skewed[:, :, :length].sum(1)


def _toeplitz(kernel: Tensor) -> Tensor:
    """kernel [c, t] -> [c, s, t] with entry kernel[c, t - s], zero where t < s."""
    channels, length = kernel.shape
    rows = F.pad(kernel, (0, length))[:, None].expand(channels, length, 2 * length)
    flat = rows.reshape(channels, -1)[:, : length * (2 * length - 1)]
    return flat.reshape(channels, length, 2 * length - 1)[:, :, :length]

"""Triton bodies for the delta rule (`mixers/ops/delta_rule.py` defines it).

One program a document and head holds its t x t matrices, goes through key and value channels in chunks, and inverts the
triangular system by blocks that double in size, at first those of 16 positions side by side. Positions are two tiles,
the first a power of two and what is left: of 35 positions 32 and 3, which fill 16. Tiles above the diagonal are not
computed, so that matrices are 32 x 32, 16 x 32 and 16 x 16 where a single tile would be 64 x 64. Every product is three
of tensor cores, which err as little as float32 does, whatever precision matrix products have elsewhere: the system
multiplies their errors. The backward pass reads the matrices that the forward pass made: making them takes longer than
anything else in it.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import PROCESSORS
from mixerscope.kernels.products import three_products as _dot

CHUNK = 32
"""Channels handled at once."""
SMALLEST = 16
"""The least size Triton multiplies matrices at."""
WARPS, REGISTERS = 2, 255
"""More warps would share tiles that are too small for them. A processor holds four programs of 255 registers, which are
all a thread can have; with 200 it would hold five, but they spill. Few programs have all in any case."""
FEW, FEW_WARPS, FEW_WARPS_BACKWARD = 2 * PROCESSORS, 4, 2
"""So few programs all run at once with more warps, and end sooner. Not on the way back: there, at width 16, the number
of warps decides in which order the gradient of a beta is summed."""


def forward(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """o and what was written, both [m, b, t, h, e], and the matrices [m, b, h, 3, t, t], the latter two in float32."""
    q, k, v, beta = (x.contiguous() for x in (q, k, v, beta))
    models, documents, length, heads, _ = q.shape
    o, written = v.new_empty(v.shape), v.new_empty(v.shape, dtype=torch.float32)
    matrices = v.new_empty(models, documents, heads, 3, length, length, dtype=torch.float32)
    _delta_forward[_grid(q)](q, k, v, beta, o, written, matrices, **_sizes(q, v), **_resources(q, FEW_WARPS))
    return o, written, matrices


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, written: Tensor, matrices: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and beta."""
    grad, q, k, v, beta, written, matrices = (x.contiguous() for x in (grad, q, k, v, beta, written, matrices))
    grad_q, grad_k, grad_v, grad_beta = (x.new_empty(x.shape) for x in (q, k, v, beta))
    _delta_backward[_grid(q)](
        grad, q, k, v, beta, written, matrices, grad_q, grad_k, grad_v, grad_beta, **_sizes(q, v),
        **_resources(q, FEW_WARPS_BACKWARD),
    )  # fmt: skip
    return grad_q, grad_k, grad_v, grad_beta


def _grid(q: Tensor) -> tuple[int]:
    return (q.shape[0] * q.shape[1] * q.shape[3],)


def _resources(q: Tensor, warps_of_few: int) -> dict[str, int]:
    [programs] = _grid(q)
    warps, registers = warps_of_few if programs <= FEW else WARPS, 255 if programs <= 4 * PROCESSORS else REGISTERS
    return {"num_warps": warps, "maxnreg": registers, "num_stages": 1}


def _sizes(q: Tensor, v: Tensor) -> dict[str, int]:
    _, _, length, heads, keys = q.shape

    def padded(size: int) -> int:
        return max(SMALLEST, triton.next_power_of_2(size))

    first = max(SMALLEST, padded(length) // 2)
    return {
        "LENGTH": length, "HEADS": heads, "KEYS": keys, "VALUES": v.shape[-1], "FIRST": first,
        "REST": padded(length - first), "KEY_CHUNK": min(CHUNK, padded(keys)),
        "VALUE_CHUNK": min(CHUNK, padded(v.shape[-1])),
    }  # fmt: skip


@triton.jit
def _tile(
    pointer, first, t, start, LENGTH: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """Pointers to [t, chunk] of one document and head, and which of them are real."""
    at = start + tl.arange(0, CHUNK)
    real = (t[:, None] < LENGTH) & (at[None, :] < WIDTH)
    return pointer + (first + t[:, None] * HEADS) * WIDTH + at[None, :], real


@triton.jit
def _read(
    pointer, first, t, start, LENGTH: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    at, real = _tile(pointer, first, t, start, LENGTH, HEADS, WIDTH, CHUNK)
    return tl.load(at, mask=real, other=0.0).to(tl.float32)


@triton.jit
def _write(
    pointer, value, first, t, start, LENGTH: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    at, real = _tile(pointer, first, t, start, LENGTH, HEADS, WIDTH, CHUNK)
    tl.store(at, value, mask=real)


@triton.jit
def _square(pointer, program, part, i, j, LENGTH: tl.constexpr):
    """Pointers to a tile of one of a program's three matrices [t, t], and which of them are real."""
    at = pointer + ((program * 3 + part) * LENGTH + i[:, None]) * LENGTH + j[None, :]
    return at, (i < LENGTH)[:, None] & (j < LENGTH)[None, :]


@triton.jit
def _keep(pointer, program, part, aa, ba, bb, a, b, LENGTH: tl.constexpr):
    """Stores one of the matrices, with zeros above the diagonal."""
    at, real = _square(pointer, program, part, a, a, LENGTH)
    tl.store(at, aa, mask=real)
    at, real = _square(pointer, program, part, a, b, LENGTH)
    tl.store(at, tl.zeros([a.shape[0], b.shape[0]], tl.float32), mask=real)
    at, real = _square(pointer, program, part, b, a, LENGTH)
    tl.store(at, ba, mask=real)
    at, real = _square(pointer, program, part, b, b, LENGTH)
    tl.store(at, bb, mask=real)


@triton.jit
def _kept(pointer, program, part, i, j, LENGTH: tl.constexpr):
    at, real = _square(pointer, program, part, i, j, LENGTH)
    return tl.load(at, mask=real, other=0.0)


@triton.jit
def _inverse(below, SIZE: tl.constexpr, REAL: tl.constexpr, BLOCK: tl.constexpr = 16):
    """(I + below)^-1 for [t, t] with entries under the diagonal only, in rows before `REAL` only."""
    tl.static_assert(SIZE <= 2 * BLOCK)
    t, s = tl.arange(0, SIZE), tl.arange(0, BLOCK)
    if SIZE == BLOCK:
        return _inverse_of_blocks(below, t[:, None], t[None, :], REAL)
    else:  # noqa: RET505 - what follows a return is compiled all the same
        # The two blocks along the diagonal side by side [2, 16, 16]: in a tile, most of what is multiplied were zeros.
        half = tl.arange(0, 2)
        diagonal = (half[:, None] == half[None, :])[:, None, :, None]
        blocks = tl.sum(tl.where(diagonal, tl.reshape(below, [2, BLOCK, 2, BLOCK]), 0.0), 2)
        x = _inverse_of_blocks(blocks, s[None, :, None], s[None, None, :], BLOCK)
        x = tl.reshape(tl.where(diagonal, x[:, :, None, :], 0.0), [SIZE, SIZE])
        return _doubled(below, x, t[:, None], t[None, :], BLOCK)


@triton.jit
def _inverse_of_blocks(below, i, j, REAL: tl.constexpr):
    x = tl.where((i // 2 == j // 2) & (i > j), -below, tl.where(i == j, 1.0, 0.0))
    size = 2
    # A loop: its steps one after the other made 142 kB of instructions at width 32, which took longer than width 64.
    while size < REAL:
        x = _doubled(below, x, i, j, size)
        size *= 2
    return x


@triton.jit
def _doubled(below, x, i, j, size):
    """What is right for blocks of some size along the diagonal becomes right for blocks of twice the size: of such a
    block, the lower left quarter N of I + below turns into -X_2 N X_1, with the inverses X of its two halves."""
    quarter = ((i ^ j) & -2 * size == 0) & ((i & size) > (j & size))
    return x - _dot(x, _dot(tl.where(quarter, below, 0.0), x))


@triton.jit
def _under(x, t, strictly: tl.constexpr):
    """Zeros above the diagonal of a tile that lies on it, and on it if so asked."""
    return tl.where(t[:, None] > t[None, :] if strictly else t[:, None] >= t[None, :], x, 0.0)


@triton.jit
def _delta_forward(
    q, k, v, beta, o, written, matrices,
    LENGTH: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, FIRST: tl.constexpr,
    REST: tl.constexpr, KEY_CHUNK: tl.constexpr, VALUE_CHUNK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    first = program // HEADS * LENGTH * HEADS + program % HEADS  # the row of position 0
    a, b = tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    rates_a = tl.load(beta + first + a * HEADS, mask=a < LENGTH, other=0.0).to(tl.float32)[:, None]
    rates_b = tl.load(beta + first + b * HEADS, mask=b < LENGTH, other=0.0).to(tl.float32)[:, None]
    scores_aa, similar_aa = tl.zeros([FIRST, FIRST], tl.float32), tl.zeros([FIRST, FIRST], tl.float32)
    scores_ba, similar_ba = tl.zeros([REST, FIRST], tl.float32), tl.zeros([REST, FIRST], tl.float32)
    scores_bb, similar_bb = tl.zeros([REST, REST], tl.float32), tl.zeros([REST, REST], tl.float32)
    for start in range(0, KEYS, KEY_CHUNK):
        keys_a = _read(k, first, a, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        keys_b = _read(k, first, b, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        queries_a = _read(q, first, a, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        queries_b = _read(q, first, b, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        to_a, to_b = tl.trans(keys_a), tl.trans(keys_b)
        scores_aa, similar_aa = scores_aa + _dot(queries_a, to_a), similar_aa + _dot(keys_a, to_a)
        scores_ba, similar_ba = scores_ba + _dot(queries_b, to_a), similar_ba + _dot(keys_b, to_a)
        scores_bb, similar_bb = scores_bb + _dot(queries_b, to_b), similar_bb + _dot(keys_b, to_b)
    scores_aa, similar_aa = _under(scores_aa, a, False), _under(similar_aa, a, True)
    scores_bb, similar_bb = _under(scores_bb, b, False), _under(similar_bb, b, True)
    inverse_aa = _inverse(similar_aa * rates_a, FIRST, FIRST if LENGTH > FIRST else LENGTH)
    inverse_bb = _inverse(similar_bb * rates_b, REST, LENGTH - FIRST)
    inverse_ba = -_dot(inverse_bb, _dot(similar_ba * rates_b, inverse_aa))
    _keep(matrices, program, 0, scores_aa, scores_ba, scores_bb, a, b, LENGTH)
    _keep(matrices, program, 1, similar_aa, similar_ba, similar_bb, a, b, LENGTH)
    _keep(matrices, program, 2, inverse_aa, inverse_ba, inverse_bb, a, b, LENGTH)
    for start in range(0, VALUES, VALUE_CHUNK):
        right_a = rates_a * _read(v, first, a, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        right_b = rates_b * _read(v, first, b, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        u_a = _dot(inverse_aa, right_a)
        u_b = _dot(inverse_ba, right_a) + _dot(inverse_bb, right_b)
        _write(written, u_a, first, a, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        _write(written, u_b, first, b, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        o_b = _dot(scores_ba, u_a) + _dot(scores_bb, u_b)
        _write(o, _dot(scores_aa, u_a), first, a, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        _write(o, o_b, first, b, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)


@triton.jit
def _delta_backward(
    grad, q, k, v, beta, written, matrices, grad_q, grad_k, grad_v, grad_beta,
    LENGTH: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, FIRST: tl.constexpr,
    REST: tl.constexpr, KEY_CHUNK: tl.constexpr, VALUE_CHUNK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    first = program // HEADS * LENGTH * HEADS + program % HEADS
    a, b = tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    rates_a = tl.load(beta + first + a * HEADS, mask=a < LENGTH, other=0.0).to(tl.float32)[:, None]
    rates_b = tl.load(beta + first + b * HEADS, mask=b < LENGTH, other=0.0).to(tl.float32)[:, None]
    readers_aa = tl.trans(_kept(matrices, program, 0, a, a, LENGTH))
    readers_ab = tl.trans(_kept(matrices, program, 0, b, a, LENGTH))
    readers_bb = tl.trans(_kept(matrices, program, 0, b, b, LENGTH))
    inverse_aa = tl.trans(_kept(matrices, program, 2, a, a, LENGTH))
    inverse_ab = tl.trans(_kept(matrices, program, 2, b, a, LENGTH))
    inverse_bb = tl.trans(_kept(matrices, program, 2, b, b, LENGTH))
    scores_aa, overlap_aa = tl.zeros([FIRST, FIRST], tl.float32), tl.zeros([FIRST, FIRST], tl.float32)
    scores_ba, overlap_ba = tl.zeros([REST, FIRST], tl.float32), tl.zeros([REST, FIRST], tl.float32)
    scores_bb, overlap_bb = tl.zeros([REST, REST], tl.float32), tl.zeros([REST, REST], tl.float32)
    of_rates_a, of_rates_b = tl.zeros([FIRST], tl.float32), tl.zeros([REST], tl.float32)
    for start in range(0, VALUES, VALUE_CHUNK):
        g_a = _read(grad, first, a, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        g_b = _read(grad, first, b, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        # The system transposed: afterwards this is the gradient of beta v.
        read_a, read_b = _dot(readers_aa, g_a) + _dot(readers_ab, g_b), _dot(readers_bb, g_b)
        by_a, by_b = _dot(inverse_aa, read_a) + _dot(inverse_ab, read_b), _dot(inverse_bb, read_b)
        of_rates_a += tl.sum(_read(v, first, a, start, LENGTH, HEADS, VALUES, VALUE_CHUNK) * by_a, 1)
        of_rates_b += tl.sum(_read(v, first, b, start, LENGTH, HEADS, VALUES, VALUE_CHUNK) * by_b, 1)
        _write(grad_v, rates_a * by_a, first, a, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        _write(grad_v, rates_b * by_b, first, b, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        u_a = tl.trans(_read(written, first, a, start, LENGTH, HEADS, VALUES, VALUE_CHUNK))
        u_b = tl.trans(_read(written, first, b, start, LENGTH, HEADS, VALUES, VALUE_CHUNK))
        scores_aa, overlap_aa = scores_aa + _dot(g_a, u_a), overlap_aa - _dot(by_a, u_a)
        scores_ba, overlap_ba = scores_ba + _dot(g_b, u_a), overlap_ba - _dot(by_b, u_a)
        scores_bb, overlap_bb = scores_bb + _dot(g_b, u_b), overlap_bb - _dot(by_b, u_b)
    scores_aa, overlap_aa = _under(scores_aa, a, False), _under(overlap_aa, a, True)
    scores_bb, overlap_bb = _under(scores_bb, b, False), _under(overlap_bb, b, True)
    of_rates_a += tl.sum(_kept(matrices, program, 1, a, a, LENGTH) * overlap_aa, 1)
    of_rates_b += tl.sum(_kept(matrices, program, 1, b, a, LENGTH) * overlap_ba, 1)
    of_rates_b += tl.sum(_kept(matrices, program, 1, b, b, LENGTH) * overlap_bb, 1)
    tl.store(grad_beta + first + a * HEADS, of_rates_a, mask=a < LENGTH)
    tl.store(grad_beta + first + b * HEADS, of_rates_b, mask=b < LENGTH)
    similar_aa, similar_ba, similar_bb = rates_a * overlap_aa, rates_b * overlap_ba, rates_b * overlap_bb
    similar_aa += tl.trans(similar_aa)
    similar_bb += tl.trans(similar_bb)
    for start in range(0, KEYS, KEY_CHUNK):
        keys_a = _read(k, first, a, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        keys_b = _read(k, first, b, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        queries_a = _read(q, first, a, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        queries_b = _read(q, first, b, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        of_q_b = _dot(scores_ba, keys_a) + _dot(scores_bb, keys_b)
        _write(grad_q, _dot(scores_aa, keys_a), first, a, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        _write(grad_q, of_q_b, first, b, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        of_k_a = _dot(similar_aa, keys_a) + _dot(tl.trans(similar_ba), keys_b)
        of_k_a += _dot(tl.trans(scores_aa), queries_a) + _dot(tl.trans(scores_ba), queries_b)
        of_k_b = _dot(similar_ba, keys_a) + _dot(similar_bb, keys_b) + _dot(tl.trans(scores_bb), queries_b)
        _write(grad_k, of_k_a, first, a, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        _write(grad_k, of_k_b, first, b, start, LENGTH, HEADS, KEYS, KEY_CHUNK)

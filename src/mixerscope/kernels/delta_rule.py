"""Triton bodies for the delta rule (`mixers/ops/delta_rule.py` defines it).

One program a document and head holds its t x t matrices, goes through key and value channels in chunks, and inverts the
triangular system by blocks that double in size. Every product is three of tensor cores (tf32x3), which err as little as
float32 does, whatever precision matrix products have elsewhere: the system multiplies their errors. The backward pass
reads the matrices that the forward pass made: making them takes longer than anything else in it.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 32
"""Channels handled at once."""
SMALLEST = 16
"""The least size Triton multiplies matrices at."""
WARPS = 4


def forward(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """o and what was written, both [m, b, t, h, e], and the matrices [m, b, h, 3, t, t], the latter two in float32."""
    q, k, v, beta = (x.contiguous() for x in (q, k, v, beta))
    models, documents, length, heads, _ = q.shape
    o, written = v.new_empty(v.shape), v.new_empty(v.shape, dtype=torch.float32)
    matrices = v.new_empty(models, documents, heads, 3, length, length, dtype=torch.float32)
    _delta_forward[_grid(q)](q, k, v, beta, o, written, matrices, **_sizes(q, v), num_warps=WARPS, num_stages=1)
    return o, written, matrices


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, written: Tensor, matrices: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and beta."""
    grad, q, k, v, beta, written, matrices = (x.contiguous() for x in (grad, q, k, v, beta, written, matrices))
    grad_q, grad_k, grad_v, grad_beta = (x.new_empty(x.shape) for x in (q, k, v, beta))
    _delta_backward[_grid(q)](
        grad, q, k, v, beta, written, matrices, grad_q, grad_k, grad_v, grad_beta, **_sizes(q, v),
        num_warps=WARPS, num_stages=1,
    )  # fmt: skip
    return grad_q, grad_k, grad_v, grad_beta


def _grid(q: Tensor) -> tuple[int]:
    return (q.shape[0] * q.shape[1] * q.shape[3],)


def _sizes(q: Tensor, v: Tensor) -> dict[str, int]:
    _, _, length, heads, keys = q.shape

    def padded(size: int) -> int:
        return max(SMALLEST, triton.next_power_of_2(size))

    return {
        "LENGTH": length, "HEADS": heads, "KEYS": keys, "VALUES": v.shape[-1], "PADDED": padded(length),
        "KEY_CHUNK": min(CHUNK, padded(keys)), "VALUE_CHUNK": min(CHUNK, padded(v.shape[-1])),
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
def _square(pointer, program, part, i, j, LENGTH: tl.constexpr):
    """Pointers to one of a program's three matrices [t, t], and which of them are real."""
    return pointer + ((program * 3 + part) * LENGTH + i) * LENGTH + j, (i < LENGTH) & (j < LENGTH)


@triton.jit
def _products(
    q, k, first, t, LENGTH: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr, KEY_CHUNK: tl.constexpr,
    PADDED: tl.constexpr,
):  # fmt: skip
    """q_i . k_j and k_i . k_j, [t, t]."""
    scores, similar = tl.zeros([PADDED, PADDED], tl.float32), tl.zeros([PADDED, PADDED], tl.float32)
    for start in range(0, KEYS, KEY_CHUNK):
        from_q, real = _tile(q, first, t, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        from_k, real = _tile(k, first, t, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        keys = tl.load(from_k, mask=real, other=0.0).to(tl.float32)
        queries = tl.load(from_q, mask=real, other=0.0).to(tl.float32)
        scores = tl.dot(queries, tl.trans(keys), scores, input_precision="tf32x3")
        similar = tl.dot(keys, tl.trans(keys), similar, input_precision="tf32x3")
    return scores, similar


@triton.jit
def _inverse(below, t, PADDED: tl.constexpr):  # fmt: skip
    """(I + below)^-1 for [t, t] with entries under the diagonal only.

    What is right for blocks of some size along the diagonal becomes right for blocks of twice the size: of such a
    block, the lower left quarter N of I + below turns into -X_2 N X_1, with the inverses X of its two halves.
    """
    i, j = t[:, None], t[None, :]
    x = tl.where(i == j, 1.0, 0.0)
    x = tl.where((i // 2 == j // 2) & (i > j), -below, x)
    for level in tl.static_range(1, 6):
        if 2**level < PADDED:  # blocks of this size are right
            quarter = (i >> level + 1 == j >> level + 1) & (i >> level > j >> level)
            right = tl.dot(tl.where(quarter, below, 0.0), x, input_precision="tf32x3")
            x -= tl.dot(x, right, input_precision="tf32x3")
    return x


@triton.jit
def _delta_forward(
    q, k, v, beta, o, written, matrices,
    LENGTH: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, PADDED: tl.constexpr,
    KEY_CHUNK: tl.constexpr, VALUE_CHUNK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    first = program // HEADS * LENGTH * HEADS + program % HEADS  # the row of position 0
    t = tl.arange(0, PADDED)
    rates = tl.load(beta + first + t * HEADS, mask=t < LENGTH, other=0.0).to(tl.float32)
    scores, similar = _products(q, k, first, t, LENGTH, HEADS, KEYS, KEY_CHUNK, PADDED)
    scores = tl.where(t[:, None] >= t[None, :], scores, 0.0)
    below = tl.where(t[:, None] > t[None, :], similar * rates[:, None], 0.0)
    inverse = _inverse(below, t, PADDED)
    to_scores, inside = _square(matrices, program, 0, t[:, None], t[None, :], LENGTH)
    tl.store(to_scores, scores, mask=inside)
    tl.store(to_scores + LENGTH * LENGTH, similar, mask=inside)
    tl.store(to_scores + 2 * LENGTH * LENGTH, inverse, mask=inside)
    for start in range(0, VALUES, VALUE_CHUNK):
        from_v, real = _tile(v, first, t, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        right = rates[:, None] * tl.load(from_v, mask=real, other=0.0).to(tl.float32)
        u = tl.dot(inverse, right, input_precision="tf32x3")
        to_written, real = _tile(written, first, t, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        tl.store(to_written, u, mask=real)
        to_o, real = _tile(o, first, t, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        tl.store(to_o, tl.dot(scores, u, input_precision="tf32x3"), mask=real)


@triton.jit
def _delta_backward(
    grad, q, k, v, beta, written, matrices, grad_q, grad_k, grad_v, grad_beta,
    LENGTH: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, PADDED: tl.constexpr,
    KEY_CHUNK: tl.constexpr, VALUE_CHUNK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    first = program // HEADS * LENGTH * HEADS + program % HEADS
    t = tl.arange(0, PADDED)
    rates = tl.load(beta + first + t * HEADS, mask=t < LENGTH, other=0.0).to(tl.float32)
    # Transposed as they are read.
    from_scores, inside = _square(matrices, program, 0, t[None, :], t[:, None], LENGTH)
    readers = tl.load(from_scores, mask=inside, other=0.0)
    inverse = tl.load(from_scores + 2 * LENGTH * LENGTH, mask=inside, other=0.0)
    by_scores, by_overlap = tl.zeros([PADDED, PADDED], tl.float32), tl.zeros([PADDED, PADDED], tl.float32)
    by_rates = tl.zeros([PADDED], tl.float32)
    for start in range(0, VALUES, VALUE_CHUNK):
        from_grad, real = _tile(grad, first, t, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        g = tl.load(from_grad, mask=real, other=0.0).to(tl.float32)
        # The system transposed: afterwards this is the gradient of beta v.
        by_u = tl.dot(inverse, tl.dot(readers, g, input_precision="tf32x3"), input_precision="tf32x3")
        from_v, real = _tile(v, first, t, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        by_rates += tl.sum(tl.load(from_v, mask=real, other=0.0).to(tl.float32) * by_u, 1)
        to_v, real = _tile(grad_v, first, t, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        tl.store(to_v, rates[:, None] * by_u, mask=real)
        from_written, real = _tile(written, first, t, start, LENGTH, HEADS, VALUES, VALUE_CHUNK)
        u = tl.trans(tl.load(from_written, mask=real, other=0.0))
        by_scores = tl.dot(g, u, by_scores, input_precision="tf32x3")
        by_overlap = tl.dot(-by_u, u, by_overlap, input_precision="tf32x3")
    by_scores = tl.where(t[:, None] >= t[None, :], by_scores, 0.0)
    by_overlap = tl.where(t[:, None] > t[None, :], by_overlap, 0.0)
    from_similar, inside = _square(matrices, program, 1, t[:, None], t[None, :], LENGTH)
    similar = tl.load(from_similar, mask=inside, other=0.0)
    by_rates += tl.sum(similar * by_overlap, 1)
    tl.store(grad_beta + first + t * HEADS, by_rates, mask=t < LENGTH)
    by_similar = rates[:, None] * by_overlap
    by_similar += tl.trans(by_similar)
    for start in range(0, KEYS, KEY_CHUNK):
        from_q, real = _tile(q, first, t, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        from_k, real = _tile(k, first, t, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        keys = tl.load(from_k, mask=real, other=0.0).to(tl.float32)
        queries = tl.load(from_q, mask=real, other=0.0).to(tl.float32)
        to_q, real = _tile(grad_q, first, t, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        tl.store(to_q, tl.dot(by_scores, keys, input_precision="tf32x3"), mask=real)
        of_keys = tl.dot(by_similar, keys, input_precision="tf32x3")
        to_k, real = _tile(grad_k, first, t, start, LENGTH, HEADS, KEYS, KEY_CHUNK)
        tl.store(to_k, tl.dot(tl.trans(by_scores), queries, of_keys, input_precision="tf32x3"), mask=real)

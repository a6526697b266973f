"""Triton bodies for linear attention with one decay per head (`mixers/ops/decay_attention.py` defines it).

A program holds the t x t scores of a document and goes through heads that share queries and keys, or has one head
where they do not. Backward it has all heads that share them, so that what these give to queries and keys is summed
inside, in the order of the heads; scores and decays are made again, since that takes less than reading them. Tensors
are read as they lie.

The sum of log decays between two positions is a running sum along a row in which everything outside of the pair is
zero already: like that of the plain body it only ever adds what belongs to the pair, and takes no differences.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false, reportOperatorIssue=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.residual import padded, precision

CHUNK, CHUNK_IF_EXACT = 32, 16
"""Channels handled at once. Exact products hold their factors in several parts."""
FORWARD_HEADS = 8
"""That a program takes at most if they share queries and keys: each that it takes spares reading these again."""
FORWARD_WARPS = {16: 1, 32: 2, 64: 4}
BACKWARD_WARPS = {16: 1, 32: 4, 64: 8}
"""By length, padded: as many as hold the t x t matrices of a program in registers."""


def forward(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, exact: bool) -> Tensor:
    """o [m, b, t, h, e]."""
    o, flat = v.new_empty(v.shape), _by_document(q, k, v, log_decay)
    group = _group(q, k, v, FORWARD_HEADS)
    sizes = _sizes(flat, group, exact)
    grid = (len(flat[2]) * (v.shape[3] // group),)
    _decay_forward[grid](*flat, o, **sizes, num_warps=FORWARD_WARPS[sizes["PADDED"]], num_stages=1)
    return o


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, exact: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and log_decay."""
    of_q, of_k, of_v = (x.new_empty(x.shape) for x in (q, k, v))
    of_decay = log_decay.new_empty(*v.shape[:4], dtype=torch.float32 if log_decay.shape[1] == 1 else log_decay.dtype)
    flat, (grad,) = _by_document(q, k, v, log_decay), _as_it_lies(grad)
    group = _group(q, k, v, v.shape[3])
    sizes = _sizes(flat, group, exact)
    grid = (len(grad) * (v.shape[3] // group),)
    _decay_backward[grid](
        grad, *flat, of_q, of_k, of_v, of_decay, **sizes, GRAD=_strides(grad), OF_Q=_strides(of_q.flatten(0, 1)),
        num_warps=BACKWARD_WARPS[sizes["PADDED"]], num_stages=1,
    )  # fmt: skip
    if of_decay.shape != log_decay.shape:
        of_decay = of_decay.sum(1, keepdim=True).to(log_decay.dtype)
    return of_q, of_k, of_v, of_decay


def _by_document(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, ...]:
    """[m, b, ...] -> [m b, ...] of all four; decays that documents share are repeated: they are small."""
    return *_as_it_lies(q, k, v), log_decay.expand(-1, v.shape[1], -1, -1).flatten(0, 1)


def _as_it_lies(*tensors: Tensor) -> tuple[Tensor, ...]:
    """[m, b, t, h, c] -> [m b, t, h, c]: a copy only where channels, or documents and models, are not evenly apart."""
    flat = (tensor.flatten(0, 1) for tensor in tensors)
    return tuple(tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in flat)


def _strides(tensor: Tensor) -> tuple[int, int, int]:
    """How far documents, positions and heads [n, t, h, ...] lie apart; a head that is all of them stays where it is."""
    document, position, head = tensor.stride()[:3]
    return document, position, 0 if tensor.shape[2] == 1 else head


def _group(q: Tensor, k: Tensor, v: Tensor, most: int) -> int:
    """Heads of a program: a divisor of their number."""
    heads = v.shape[3]
    assert q.shape == k.shape, "heads share queries and keys, or neither"
    return 1 if q.shape[3] == heads else max(n for n in range(1, min(most, heads) + 1) if heads % n == 0)


def _sizes(flat: tuple[Tensor, ...], group: int, exact: bool) -> dict:
    q, k, v, log_decay = flat
    (_, length, heads, values), keys = v.shape, q.shape[-1]
    exact = exact and v.dtype == torch.float32  # what is in bfloat16 has fewer digits than tensor cores take
    chunk = CHUNK_IF_EXACT if exact else CHUNK
    return {
        "Q": _strides(q), "K": _strides(k), "V": _strides(v), "DECAY": _strides(log_decay),
        "OUT": (length * heads * values, heads * values, values), "LENGTH": length, "HEADS": heads, "KEYS": keys,
        "VALUES": values, "GROUP": group, "PADDED": padded(length), "KEY_CHUNK": min(chunk, padded(keys)),
        "VALUE_CHUNK": min(chunk, padded(values)), "PRECISION": precision(exact),
    }  # fmt: skip


@triton.jit
def _place(HEADS: tl.constexpr, GROUP: tl.constexpr):
    """Which document a program has, of all models one after the other, and its first head."""
    program = tl.program_id(0).to(tl.int64)
    groups: tl.constexpr = HEADS // GROUP
    return program // groups, program % groups * GROUP


@triton.jit
def _tile(
    at, document, head, t, start, STRIDES: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """Pointers to [t, chunk] of one document and head, and which of them are real."""
    channel = start + tl.arange(0, CHUNK)
    real = (t < LENGTH)[:, None] & (channel < WIDTH)[None, :]
    first = at + document * STRIDES[0] + head * STRIDES[2]
    return first + t[:, None] * STRIDES[1] + channel[None, :], real


@triton.jit
def _products(
    a_at, b_at, document, head, t, A: tl.constexpr, B: tl.constexpr, LENGTH: tl.constexpr, KEYS: tl.constexpr,
    KEY_CHUNK: tl.constexpr, PADDED: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """a_i . b_j [t, t]."""
    found = tl.zeros([PADDED, PADDED], tl.float32)
    for start in range(0, KEYS, KEY_CHUNK):
        from_a, real = _tile(a_at, document, head, t, start, A, LENGTH, KEYS, KEY_CHUNK)
        from_b, real = _tile(b_at, document, head, t, start, B, LENGTH, KEYS, KEY_CHUNK)
        a = tl.load(from_a, real, 0.0).to(tl.float32)
        found = tl.dot(a, tl.trans(tl.load(from_b, real, 0.0).to(tl.float32)), found, input_precision=P)
    return found


@triton.jit
def _decay_forward(
    q_at, k_at, v_at, decay_at, o_at,
    Q: tl.constexpr, K: tl.constexpr, V: tl.constexpr, DECAY: tl.constexpr, OUT: tl.constexpr, LENGTH: tl.constexpr,
    HEADS: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, GROUP: tl.constexpr, PADDED: tl.constexpr,
    KEY_CHUNK: tl.constexpr, VALUE_CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    document, first = _place(HEADS, GROUP)
    t = tl.arange(0, PADDED)
    scores = _products(q_at, k_at, document, first, t, Q, K, LENGTH, KEYS, KEY_CHUNK, PADDED, PRECISION)  # [i, j]
    for i in range(GROUP):
        head = first + i
        # The sum over j < s <= i, from i back to j: position j holds the decay of j + 1.
        from_decay = decay_at + document * DECAY[0] + head * DECAY[2] + (t + 1) * DECAY[1]
        after = tl.load(from_decay, t + 1 < LENGTH, 0.0).to(tl.float32)
        between = tl.cumsum(tl.where(t[:, None] > t[None, :], after[None, :], 0.0), 1, reverse=True)
        pattern = scores * tl.where(t[:, None] >= t[None, :], tl.exp(between), 0.0)
        for start in range(0, VALUES, VALUE_CHUNK):
            from_v, real = _tile(v_at, document, head, t, start, V, LENGTH, VALUES, VALUE_CHUNK)
            o = tl.dot(pattern, tl.load(from_v, real, 0.0).to(tl.float32), input_precision=PRECISION)
            to_o, real = _tile(o_at, document, head, t, start, OUT, LENGTH, VALUES, VALUE_CHUNK)
            tl.store(to_o, o, real)


@triton.jit
def _decay_backward(
    grad_at, q_at, k_at, v_at, decay_at, of_q_at, of_k_at, of_v_at, of_decay_at,
    Q: tl.constexpr, K: tl.constexpr, V: tl.constexpr, DECAY: tl.constexpr, OUT: tl.constexpr, LENGTH: tl.constexpr,
    HEADS: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, GROUP: tl.constexpr, PADDED: tl.constexpr,
    KEY_CHUNK: tl.constexpr, VALUE_CHUNK: tl.constexpr, PRECISION: tl.constexpr, GRAD: tl.constexpr, OF_Q: tl.constexpr,
):  # fmt: skip
    # All matrices are [j, i]: values and keys then take them as they are.
    document, first = _place(HEADS, GROUP)
    t = tl.arange(0, PADDED)
    scores = _products(k_at, q_at, document, first, t, K, Q, LENGTH, KEYS, KEY_CHUNK, PADDED, PRECISION)
    by_scores = tl.zeros([PADDED, PADDED], tl.float32)
    for i in range(GROUP):
        head = first + i
        from_decay = decay_at + document * DECAY[0] + head * DECAY[2] + t * DECAY[1]
        here = tl.load(from_decay, t < LENGTH, 0.0).to(tl.float32)
        between = tl.cumsum(tl.where(t[:, None] < t[None, :], here[None, :], 0.0), 1)
        decay = tl.where(t[:, None] <= t[None, :], tl.exp(between), 0.0)
        pattern = scores * decay
        by_pattern = tl.zeros([PADDED, PADDED], tl.float32)
        for start in range(0, VALUES, VALUE_CHUNK):
            from_grad, real = _tile(grad_at, document, head, t, start, GRAD, LENGTH, VALUES, VALUE_CHUNK)
            from_v, real = _tile(v_at, document, head, t, start, V, LENGTH, VALUES, VALUE_CHUNK)
            g = tl.load(from_grad, real, 0.0).to(tl.float32)
            v = tl.load(from_v, real, 0.0).to(tl.float32)
            by_pattern = tl.dot(v, tl.trans(g), by_pattern, input_precision=PRECISION)
            to_v, real = _tile(of_v_at, document, head, t, start, OUT, LENGTH, VALUES, VALUE_CHUNK)
            tl.store(to_v, tl.dot(pattern, g, input_precision=PRECISION), real)
        by_scores += by_pattern * decay
        # Position s is in the sums of all j < s <= i.
        to_later = tl.cumsum(by_pattern * pattern, 1, reverse=True)
        of_decay = tl.sum(tl.where(t[:, None] < t[None, :], to_later, 0.0), 0)
        tl.store(of_decay_at + (document * LENGTH + t) * HEADS + head, of_decay, t < LENGTH)
    for start in range(0, KEYS, KEY_CHUNK):
        from_q, real = _tile(q_at, document, first, t, start, Q, LENGTH, KEYS, KEY_CHUNK)
        from_k, real = _tile(k_at, document, first, t, start, K, LENGTH, KEYS, KEY_CHUNK)
        of_k = tl.dot(by_scores, tl.load(from_q, real, 0.0).to(tl.float32), input_precision=PRECISION)
        of_q = tl.dot(tl.trans(by_scores), tl.load(from_k, real, 0.0).to(tl.float32), input_precision=PRECISION)
        to_q, real = _tile(of_q_at, document, first, t, start, OF_Q, LENGTH, KEYS, KEY_CHUNK)
        to_k, real = _tile(of_k_at, document, first, t, start, OF_Q, LENGTH, KEYS, KEY_CHUNK)
        tl.store(to_q, of_q, real)
        tl.store(to_k, of_k, real)

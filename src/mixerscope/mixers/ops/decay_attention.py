"""Linear attention with one decay per head: S_t = a_t S_{t-1} + k_t v_t^T,  o_t = S_t^T q_t  (RetNet, Mamba-2).

Shapes: q, k [b, t, h, c], or [b, t, 1, c] where heads share them; v [b, t, h, e]; log_decay = log a [b, t, h], or
[1, t, h] where documents share it; the state S [b, h, c, e].

On a GPU short documents take one operator with a leading stack axis, all shapes as above behind it, with a batching
rule and a gradient of its own: as products of batches of small matrices it is dozens of launches and copies.
"""

import torch
from torch import Tensor

from mixerscope.kernels import body, few_documents, wanted
from mixerscope.kernels.precision import exact_products, tolerance_of
from mixerscope.mixers.ops.operator import stacked_operator

OPERATOR_LENGTH = 64
"""The longest input whose t x t matrices a kernel can hold."""


def decay_attention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """o [b, t, h, e] from a zero state, as one masked t x t matrix a head: no exponent is ever positive."""
    if q.device.type != "cpu" and q.shape[1] <= OPERATOR_LENGTH and wanted():
        return _decay_attention(q[None], k[None], v[None], log_decay[None]).squeeze(0)
    # Where there is no kernel, a compiler makes more of this as it stands.
    scores = torch.einsum("bihc,bjhc->bhij", q, k)
    return torch.einsum("bhij,bjhe->bihe", scores * pairwise_log_decay(log_decay).exp(), v)


def decay_attention_step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """One position: S_{t-1}, q, k [b, h, c], v [b, h, e] and log_decay [b, h] to o_t [b, h, e] and S_t."""
    state = log_decay.exp()[..., None, None] * state + k.unsqueeze(-1) * v.unsqueeze(-2)
    return torch.einsum("bhc,bhce->bhe", q, state), state


def pairwise_log_decay(log_decay: Tensor) -> Tensor:
    """[b, t, h] -> [b, h, i, j]: the sum over j < s <= i, and -inf where j > i.

    Summed for each pair and not as a difference of running sums, which loses digits once the sums are large.
    """
    t = log_decay.shape[1]
    ones = torch.ones(t, t, dtype=log_decay.dtype, device=log_decay.device)
    sums = (log_decay.transpose(1, 2).unsqueeze(-1) * ones.tril(-1)).cumsum(-2)
    return sums.masked_fill(ones.triu(1).bool(), float("-inf"))


def plain_decay_attention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, exact: bool) -> Tensor:
    """o [m, b, t, h, e]. `exact` is for the kernel's products; those here are as torch is told."""
    scores, decay = _matrices(q, k, log_decay)
    return torch.einsum("mbhij,mbjhe->mbihe", scores * decay, v)


def plain_decay_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, exact: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and log_decay."""
    scores, decay = _matrices(q, k, log_decay)
    pattern = scores * decay
    by_pattern = torch.einsum("mbihe,mbjhe->mbhij", grad, v)
    by_scores = (by_pattern * decay).sum_to_size(scores.shape)
    of_q, of_k = torch.einsum("mbhij,mbjhc->mbihc", by_scores, k), torch.einsum("mbhij,mbihc->mbjhc", by_scores, q)
    of_v = torch.einsum("mbhij,mbihe->mbjhe", pattern, grad)
    # Position s is in the sums of all j < s <= i.
    to_later = (by_pattern * pattern).sum_to_size(decay.shape).flip(-2).cumsum(-2).flip(-2)
    return of_q, of_k, of_v, to_later.tril(-1).sum(-1).mT


def _matrices(q: Tensor, k: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """q_i . k_j and what is left at i of what was written at j, [m, b, h, i, j]; 1 in place of b or h if shared."""
    decay = pairwise_log_decay(log_decay.flatten(0, 1)).exp().unflatten(0, log_decay.shape[:2])
    return torch.einsum("mbihc,mbjhc->mbhij", q, k), decay


def _forward(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    inputs, exact = (q, k, v, log_decay), exact_products()
    sample = (*few_documents(*inputs), exact)
    chosen = body("decay_attention", (*inputs, exact), plain_decay_attention, 0, tolerance_of(q.dtype), sample)
    return chosen(*inputs, exact).contiguous()


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs, exact = (grad, q, k, v, log_decay), exact_products()
    sample, plain = (*few_documents(*inputs), exact), plain_decay_attention_backward
    chosen = body("decay_attention_backward", (*inputs, exact), plain, 0, tolerance_of(q.dtype), sample)
    of_q, of_k, of_v, of_log_decay = (tensor.contiguous() for tensor in chosen(*inputs, exact))
    return of_q, of_k, of_v, of_log_decay


def _empty(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    return v.new_empty(v.shape)


_decay_attention, _decay_attention_backward = stacked_operator("decay_attention", _forward, _backward, _empty)

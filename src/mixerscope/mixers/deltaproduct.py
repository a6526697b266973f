"""DeltaProduct: several delta-rule updates at every position, whose transitions multiply."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, init_linears, require_at_least
from mixerscope.mixers.ops.delta_rule import delta_rule, delta_step
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.mixers.ops.unit_length import unit_length
from mixerscope.sites import Site

NORM_EPSILON = 1e-5


class DeltaProduct(Mixer):
    """DeltaProduct (Siems et al. 2025): at each position `factors` updates S <- S + b_i k_i (v_i - S^T k_i)^T, each
    with a key, a value and a rate of its own, and one query after the last.

    The transition of a position is a product of generalised Householder factors I - b_i k_i k_i^T: with two of them and
    `negative_eigenvalues`, b = 2 sigmoid(w u), it can be any rotation in a plane, and with n - 1 any permutation of n
    things. q, k, v = SiLU(conv(W u)), q and k of unit length in each head; an RMS norm over each head's output. With
    one factor it is DeltaNet.
    """

    equation = "S_t = prod_i (I - b_i k_i k_i^T) S_{t-1} + ...;  y_t = W_o RMSNorm(S_t^T q_t / sqrt(d_h))"
    paper = "Siems et al. 2025, DeltaProduct: improving state-tracking in linear RNNs via Householder products"
    movers = (Mover("short convolution", "conv_out"), Mover("delta product", "heads_out"))

    def __init__(
        self, width: int, *, heads: int = 1, factors: int = 2, d_conv: int = 4, negative_eigenvalues: bool = True
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"deltaproduct: width = {width} is not divisible by heads = {heads}")
        require_at_least(1, "deltaproduct", {"factors": factors})
        require_at_least(0, "deltaproduct", {"d_conv": d_conv})
        self.heads, self.factors, self.beta_scale = heads, factors, 2.0 if negative_eigenvalues else 1.0
        channels = (1 + 2 * factors) * width
        self.qkv_proj = nn.Linear(width, channels, bias=False)
        self.beta_proj = nn.Linear(width, factors * heads, bias=False)
        self.conv = ShortConv(channels, d_conv, bias=False) if d_conv else None
        self.norm = nn.RMSNorm(width // heads, eps=NORM_EPSILON)
        self.o_proj = nn.Linear(width, width, bias=False)
        if d_conv:
            self.conv_in = Site()  # [b, t, (1 + 2 f) d]
            self.conv_out = Site()  # [b, t, (1 + 2 f) d]: q, then all k, then all v, before the activation
        else:
            self.movers = self.movers[1:]
        self.q = Site(heads=heads)  # [b, t, h, d_h], of unit length
        self.k = Site(heads=heads)  # [b, t, h, f, d_h], of unit length
        self.v = Site(heads=heads)  # [b, t, h, f, d_h]
        self.beta = Site(heads=heads)  # [b, t, h, f]
        self.heads_out = Site(heads=heads)  # [b, t, h, d_h], before the norm

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        init_linears(self, rng, rule)
        nn.init.ones_(self.norm.weight)
        if self.conv is not None:
            self.conv.init_weights(rng)

    def _read(self, x: Tensor, projected: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x [..., d] and the convolved projections -> q [..., h, c]; k, v [..., h, f, c]; beta [..., h, f]."""
        width, f = x.shape[-1], self.factors
        q, k, v = F.silu(projected).split([width, f * width, f * width], -1)
        q = unit_length(q.unflatten(-1, (self.heads, -1)))
        k = unit_length(k.unflatten(-1, (self.heads, f, -1)))
        beta = self.beta_scale * self.beta_proj(x).sigmoid()
        v, beta = v.unflatten(-1, (self.heads, f, -1)), beta.unflatten(-1, (self.heads, f))
        return self.q(q), self.k(k), self.v(v), self.beta(beta)

    def _out(self, o: Tensor) -> Tensor:
        """[..., h, d_h] -> [..., d]."""
        return self.o_proj(self.norm(o).flatten(-2))

    def forward(self, x: Tensor) -> Tensor:
        u = self.qkv_proj(x)
        if self.conv is not None:
            u = self.conv_out(self.conv(self.conv_in(u)))
        q, k, v, beta = self._read(x, u)
        f = self.factors
        # A position becomes f positions of the delta rule; only after the last of them is anything read.
        asked = q.repeat_interleave(f, 1)
        k, v, beta = (part.transpose(2, 3).flatten(1, 2) for part in (k, v, beta))
        o = delta_rule(asked, k, v, beta).unflatten(1, (-1, f))[:, :, -1]
        return self._out(self.heads_out(o * q.shape[-1] ** -0.5))

    def initial_state(self, x: Tensor) -> State:
        size = x.shape[1] // self.heads
        memory = x.new_zeros(x.shape[0], self.heads, size, size)
        return (memory,) if self.conv is None else (memory, self.conv.initial_window(x))

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        u = self.qkv_proj(x)
        window: State = ()
        if self.conv is not None:
            u, kept = self.conv.step(u, state[1])
            window = (kept,)
        q, k, v, beta = self._read(x, u)
        memory, o = state[0], torch.zeros_like(q)
        for factor in range(self.factors):
            o, memory = delta_step(memory, q, k[:, :, factor], v[:, :, factor], beta[:, :, factor])
        return self._out(o * q.shape[-1] ** -0.5), (memory, *window)

    def state_size(self, length: int) -> int:
        width = self.o_proj.in_features
        return width * width // self.heads + (0 if self.conv is None else self.conv.window_size(length))

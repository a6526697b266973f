"""DeltaNet: linear attention whose memory corrects what it holds at a key."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, init_linears, require_at_least, row_at
from mixerscope.mixers.ops.delta_rule import delta_rule, delta_step
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.mixers.ops.unit_length import unit_length
from mixerscope.sites import Site

NORM_EPSILON = 1e-5


class DeltaNet(Mixer):
    """DeltaNet (Schlag et al. 2021; Yang et al. 2024): S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T.

    q, k, v = SiLU(conv(W u)), q and k of unit length in each head, beta = sigmoid(w u) per head, and an RMS norm over
    each head's output. `d_conv` is the width of the short convolutions; 0 leaves them out.

    `heads` is 1 in most of the published code and 4 in its first version. More heads mean more, smaller memories:
    width^2 / heads numbers in all. `negative_eigenvalues` takes 2 sigmoid(w u) for beta, so that I - beta k k^T reaches
    from erasing what is held at a key to flipping its sign (Grazzi et al. 2024).
    """

    equation = "S_t = S_{t-1} + b_t k_t (v_t - S_{t-1}^T k_t)^T;  y_t = W_o RMSNorm(S_t^T q_t / sqrt(d_h))"
    paper = "Yang et al. 2024, Parallelizing linear transformers with the delta rule over sequence length"
    movers = (Mover("short convolution", "conv_out"), Mover("delta rule", "heads_out"))

    def __init__(self, width: int, *, heads: int = 1, d_conv: int = 4, negative_eigenvalues: bool = False) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"deltanet: width = {width} is not divisible by heads = {heads}")
        require_at_least(0, "deltanet", {"d_conv": d_conv})
        self.heads, self.negative_eigenvalues = heads, negative_eigenvalues
        self.qkv_proj = nn.Linear(width, 3 * width, bias=False)
        self.beta_proj = nn.Linear(width, heads, bias=False)
        self.conv = ShortConv(3 * width, d_conv, bias=False) if d_conv else None
        self.norm = nn.RMSNorm(width // heads, eps=NORM_EPSILON)
        self.o_proj = nn.Linear(width, width, bias=False)
        if d_conv:
            self.conv_in = Site()  # [b, t, 3 d]
            self.conv_out = Site()  # [b, t, 3 d]: q, k, v before the activation
        else:
            self.movers = self.movers[1:]
        self.q = Site(heads=self.heads)  # [b, t, h, d_h], of unit length
        self.k = Site(heads=self.heads)  # [b, t, h, d_h], of unit length
        self.v = Site(heads=self.heads)  # [b, t, h, d_h]
        self.beta = Site(heads=self.heads)  # [b, t, h]
        self.heads_out = Site(heads=self.heads)  # [b, t, h, d_h], before the norm

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        init_linears(self, rng, rule)
        nn.init.ones_(self.norm.weight)
        if self.conv is not None:
            self.conv.init_weights(rng)

    def _qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[..., 3 d] before the activation -> q, k, v [..., h, d_h]."""
        q, k, v = F.silu(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return unit_length(q), unit_length(k), v

    def _beta(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., h]."""
        beta = self.beta_proj(x).sigmoid()
        return 2 * beta if self.negative_eigenvalues else beta

    def _out(self, o: Tensor) -> Tensor:
        """[..., h, d_h] -> [..., d]; the norm forgets the scale 1 / sqrt(d_h) up to its epsilon."""
        return self.o_proj(self.norm(o).flatten(-2))

    def _heads(self, x: Tensor) -> Tensor:
        """[b, t, d] -> what the memory gives, [b, t, h, d_h]."""
        u = self.qkv_proj(x)
        if self.conv is not None:
            u = self.conv_out(self.conv(self.conv_in(u)))
        q, k, v = self._qkv(u)
        q, k, v, beta = self.q(q), self.k(k), self.v(v), self.beta(self._beta(x))
        return self.heads_out(delta_rule(q, k, v, beta) * q.shape[-1] ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self._out(self._heads(x))

    def learn_at(self, x: Tensor, at: Tensor) -> Tensor:
        return self._out(row_at(self._heads(x), at))

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
        q, k, v = self._qkv(u)
        o, memory = delta_step(state[0], q, k, v, self._beta(x))
        return self._out(o * q.shape[-1] ** -0.5), (memory, *window)

    def state_size(self, length: int) -> int:
        width = self.o_proj.in_features
        return width * width // self.heads + (0 if self.conv is None else self.conv.window_size(length))

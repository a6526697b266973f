"""Mamba-2: a state space model with one decay per head, which is also a masked linear attention."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, require_at_least
from mixerscope.mixers.initialisation import fan_in_uniform, step_size_bias
from mixerscope.mixers.ops.decay_attention import decay_attention, decay_attention_step
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.sites import Site

NORM_EPSILON = 1e-5


class Mamba2(Mixer):
    """Mamba-2 (Dao & Gu 2024): S_t = exp(-dt_t A) S_{t-1} + dt_t B_t x_t^T; y_t = S_t^T C_t + D x_t, for each head.

    The short convolution runs over x, B and C; B and C are shared by all heads; y SiLU(z) is RMS-normalised before
    the output projection. `d_conv` = 0 leaves the convolution out. At width 64 the defaults give the published head
    size (64) and state size (128).
    """

    block_norm = "rms"
    block_mlp = False
    equation = (
        "x, B, C = SiLU(conv(W u)); S_t = exp(-dt_t A) S_{t-1} + dt_t B_t x_t^T; "
        "y = W_o RMSNorm((S^T C + D x) * SiLU(z))"
    )
    paper = "Dao & Gu 2024, Transformers are SSMs: generalized models and efficient algorithms"
    movers = (Mover("short convolution", "conv_out"), Mover("state space recurrence", "scan_out"))

    def __init__(self, width: int, *, heads: int = 2, d_state: int = 128, d_conv: int = 4, expand: int = 2) -> None:
        super().__init__()
        require_at_least(1, "mamba2", {"heads": heads, "d_state": d_state, "expand": expand})
        require_at_least(0, "mamba2", {"d_conv": d_conv})
        self.inner, self.heads, self.d_state = expand * width, heads, d_state
        if self.inner % heads:
            raise UserError(f"mamba2: expand * width = {self.inner} is not divisible by heads = {heads}")
        channels = self.inner + 2 * d_state
        self.in_proj = nn.Linear(width, self.inner + channels + heads, bias=False)  # z; x, B, C; dt
        self.conv = ShortConv(channels, d_conv) if d_conv else None
        self.dt_bias = nn.Parameter(torch.empty(heads))
        self.a_log = nn.Parameter(torch.empty(heads))
        self.skip = nn.Parameter(torch.empty(heads))
        self.norm = nn.RMSNorm(self.inner, eps=NORM_EPSILON)
        self.out_proj = nn.Linear(self.inner, width, bias=False)
        if d_conv:
            self.conv_in = Site()  # [b, t, e + 2n]: x, B, C
            self.conv_out = Site()  # [b, t, e + 2n], before the activation
        else:
            self.movers = self.movers[1:]
        self.x = Site(heads=self.heads)  # [b, t, h, e / h]
        self.b = Site()  # [b, t, n]
        self.c = Site()  # [b, t, n]
        self.dt = Site(heads=self.heads)  # [b, t, h]
        self.gate = Site()  # [b, t, e], before the activation
        self.scan_out = Site(heads=self.heads)  # [b, t, h, e / h], the skip term included

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """As in the official code: A uniform in [1, 16], dt log-uniform in [0.001, 0.1], D one, projections uniform
        in +-1/sqrt(fan_in), the output one divided by sqrt(depth)."""
        fan_in_uniform(self.in_proj.weight, rng)
        fan_in_uniform(self.out_proj.weight, rng)
        if self.conv is not None:
            self.conv.init_weights(rng)
        step_size_bias(self.dt_bias, rng)
        with torch.no_grad():
            self.out_proj.weight /= rule.depth**0.5
            self.a_log.copy_(nn.init.uniform_(torch.empty_like(self.a_log), 1, 16, generator=rng).log())
            self.skip.fill_(1.0)
            self.norm.weight.fill_(1.0)

    def _split(self, u: Tensor) -> tuple[Tensor, ...]:
        """[..., d] -> z [..., e]; x, B, C as one [..., e + 2n]; dt [..., h] before softplus."""
        return self.in_proj(u).split([self.inner, self.inner + 2 * self.d_state, self.heads], dim=-1)

    def _read(self, xbc: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x [..., h, e / h], B and C [..., 1, n], dt [..., h]."""
        x, b, c = F.silu(xbc).split([self.inner, self.d_state, self.d_state], dim=-1)
        x, dt = self.x(x.unflatten(-1, (self.heads, -1))), self.dt(F.softplus(dt + self.dt_bias))
        return x, self.b(b).unsqueeze(-2), self.c(c).unsqueeze(-2), dt

    def _finish(self, y: Tensor, x: Tensor, z: Tensor) -> Tensor:
        y = self.scan_out(y + self.skip.unsqueeze(-1) * x).flatten(-2)
        return self.out_proj(self.norm(y * F.silu(self.gate(z))))

    def forward(self, x: Tensor) -> Tensor:
        z, xbc, dt = self._split(x)
        if self.conv is not None:
            xbc = self.conv_out(self.conv(self.conv_in(xbc)))
        x, b, c, dt = self._read(xbc, dt)
        y = decay_attention(c, b, dt.unsqueeze(-1) * x, -self.a_log.exp() * dt)
        return self._finish(y, x, z)

    def initial_state(self, x: Tensor) -> State:
        memory = x.new_zeros(x.shape[0], self.heads, self.d_state, self.inner // self.heads)
        return (memory,) if self.conv is None else (memory, self.conv.initial_window(x))

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        z, xbc, dt = self._split(x)
        window: State = ()
        if self.conv is not None:
            xbc, kept = self.conv.step(xbc, state[1])
            window = (kept,)
        x, b, c, dt = self._read(xbc, dt)
        y, memory = decay_attention_step(state[0], c, b, dt.unsqueeze(-1) * x, -self.a_log.exp() * dt)
        return self._finish(y, x, z), (memory, *window)

    def state_size(self, length: int) -> int:
        return self.inner * self.d_state + (0 if self.conv is None else self.conv.window_size(length))

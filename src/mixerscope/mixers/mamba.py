"""Mamba: a selective state space model behind a short convolution."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.mixers.base import InitRule, Mixer, Mover, State, require_at_least
from mixerscope.mixers.initialisation import fan_in_uniform, step_size_bias
from mixerscope.mixers.ops.selective_scan import selective_scan, selective_scan_at
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.sites import Site


class Mamba(Mixer):
    """Mamba (Gu & Dao 2023): s_t = exp(dt_t A) s_{t-1} + dt_t x_t B_t;  y_t = s_t C_t + D x_t, gated by SiLU(z).

    `d_conv` is the width of the short convolution; 0 leaves it out, and its weights and sites with it (the published
    runs without a convolution kept its weights, unused). `signed` takes 2 exp(dt A) - 1 in place of exp(dt A), which
    can also be negative (Grazzi et al. 2024): without that no layer can flip a sign from one position to the next.
    """

    block_norm = "rms"
    block_mlp = False
    equation = "x = SiLU(conv(W_x u)); s_t = exp(dt_t A) * s_{t-1} + dt_t x_t B_t^T; y = W_o ((s C + D x) * SiLU(z))"
    paper = "Gu & Dao 2023, Mamba: linear-time sequence modeling with selective state spaces"
    movers = (Mover("short convolution", "conv_out"), Mover("selective scan", "scan_out"))

    def __init__(
        self, width: int, *, d_state: int = 16, d_conv: int = 4, expand: int = 2, signed: bool = False
    ) -> None:
        super().__init__()
        require_at_least(1, "mamba", {"d_state": d_state, "expand": expand})
        require_at_least(0, "mamba", {"d_conv": d_conv})
        inner, self.rank, self.signed = expand * width, math.ceil(width / 16), signed
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv = ShortConv(inner, d_conv) if d_conv else None
        self.x_proj = nn.Linear(inner, self.rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        self.a_log = nn.Parameter(torch.empty(inner, d_state))
        self.skip = nn.Parameter(torch.empty(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)
        if d_conv:
            self.conv_in = Site()  # [b, t, e]
            self.conv_out = Site()  # [b, t, e], before the activation
        else:
            self.movers = self.movers[1:]
        self.act_out = Site()  # [b, t, e]
        self.gate = Site()  # [b, t, e], before the activation
        self.dt = Site()  # [b, t, e]
        self.b = Site()  # [b, t, n]
        self.c = Site()  # [b, t, n]
        self.scan_out = Site()  # [b, t, e], the skip term included

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """As published: projections uniform in +-1/sqrt(fan_in), the output one divided by sqrt(depth)."""
        for linear in (self.in_proj, self.x_proj, self.out_proj, self.dt_proj):
            fan_in_uniform(linear.weight, rng)
        step_size_bias(self.dt_proj.bias, rng)
        with torch.no_grad():
            self.out_proj.weight /= rule.depth**0.5
            self.a_log.copy_(torch.arange(1, self.a_log.shape[1] + 1).log().expand_as(self.a_log))
            self.skip.fill_(1.0)
        if self.conv is not None:
            self.conv.init_weights(rng)

    def _read(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """u [..., e] -> the step dt [..., e], what is written B [..., n] and what is read C [..., n]."""
        n = self.a_log.shape[1]
        dt, b, c = self.x_proj(u).split([self.rank, n, n], dim=-1)
        return F.softplus(self.dt_proj(dt)), b, c

    def forward(self, x: Tensor) -> Tensor:
        u, z = self.in_proj(x).chunk(2, dim=-1)
        if self.conv is not None:
            u = self.conv_out(self.conv(self.conv_in(u)))
        u = self.act_out(F.silu(u))
        dt, b, c = self._read(u)
        y = selective_scan(u, self.dt(dt), -self.a_log.exp(), self.b(b), self.c(c), self.signed) + self.skip * u
        return self.out_proj(self.scan_out(y) * F.silu(self.gate(z)))

    def forward_at(self, x: Tensor, at: Tensor) -> Tensor:
        """Reads one state per document, so that only what each position leaves in that state is computed."""
        if self.signed:
            return super().forward_at(x, at)
        rows = torch.arange(len(x), device=x.device)
        into_u, into_z = self.in_proj.weight.chunk(2)
        u = F.linear(x, into_u)
        if self.conv is not None:
            u = self.conv(u)
        u = F.silu(u)
        dt, b, c = self._read(u)
        if torch.is_grad_enabled():  # reading one state has no gradient
            y = selective_scan(u, dt, -self.a_log.exp(), b, c)[rows, at]
        else:
            y = selective_scan_at(u, dt, -self.a_log.exp(), b, c[rows, at], at)
        return self.out_proj((y + self.skip * u[rows, at]) * F.silu(F.linear(x[rows, at], into_z)))

    def initial_state(self, x: Tensor) -> State:
        state = x.new_zeros(x.shape[0], *self.a_log.shape)
        return (state,) if self.conv is None else (state, self.conv.initial_window(x))

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        u, z = self.in_proj(x).chunk(2, dim=-1)
        window: State = ()
        if self.conv is not None:
            u, kept = self.conv.step(u, state[1])
            window = (kept,)
        u = F.silu(u)
        dt, b, c = self._read(u)
        decay = torch.exp(dt[..., None] * -self.a_log.exp())
        decay = 2 * decay - 1 if self.signed else decay
        s = decay * state[0] + (dt * u)[..., None] * b[:, None]
        y = (s * c[:, None]).sum(-1) + self.skip * u
        return self.out_proj(y * F.silu(z)), (s, *window)

    def state_size(self, length: int) -> int:
        return self.a_log.numel() + (0 if self.conv is None else self.conv.window_size(length))

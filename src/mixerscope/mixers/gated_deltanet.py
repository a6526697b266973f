"""Gated DeltaNet: the delta rule on a memory that also decays."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, require_at_least
from mixerscope.mixers.initialisation import RETENTION_GAIN, step_size_bias, xavier_linears
from mixerscope.mixers.ops.gated_delta_rule import gated_delta_rule, gated_delta_rule_step
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.mixers.ops.unit_length import unit_length
from mixerscope.sites import Site

NORM_EPSILON = 1e-5
SMALLEST_DECAY_RATE = 1e-4
"""Floor of the decay rates drawn at the start, whose logarithm is the parameter."""


class GatedDeltaNet(Mixer):
    """Gated DeltaNet (Yang et al. 2024): S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T;  o_t = S_t^T q_t.

    q, k, v = SiLU(conv(W x)), q and k scaled to length one in each head, q then divided by sqrt(c); b_t =
    sigmoid(W_b x), twice that with `negative_eigenvalues`; a_t = exp(-A softplus(W_a x + dt)). The three published
    convolutions are one here, over the channels of q, k and v together: the same function and the same number of
    parameters; `d_conv` = 0 leaves it out. Each head's output is RMS-normalised and gated by SiLU(W_g x). Published
    models have keys of 0.75 and values of 1.5 times the width; here they have 1 and `expand_v` times.
    """

    block_norm = "rms"
    equation = (
        "q, k, v = SiLU(conv(W x)); S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T; "
        "y = W_o (RMSNorm(S^T q / sqrt(c)) * SiLU(W_g x))"
    )
    paper = "Yang et al. 2024, Gated delta networks: improving Mamba2 with delta rule"
    movers = (Mover("short convolution", "conv_out"), Mover("gated delta rule", "delta_out"))

    def __init__(
        self, width: int, *, heads: int = 1, expand_v: int = 2, d_conv: int = 4, negative_eigenvalues: bool = False
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"gated_deltanet: width = {width} is not divisible by heads = {heads}")
        require_at_least(1, "gated_deltanet", {"expand_v": expand_v})
        require_at_least(0, "gated_deltanet", {"d_conv": d_conv})
        self.heads, self.width, self.values = heads, width, expand_v * width
        self.beta_scale = 2.0 if negative_eigenvalues else 1.0
        self.qkv_proj = nn.Linear(width, 2 * width + self.values, bias=False)
        self.conv = ShortConv(2 * width + self.values, d_conv, bias=False) if d_conv else None
        self.beta_proj = nn.Linear(width, heads, bias=False)
        self.decay_proj = nn.Linear(width, heads, bias=False)
        self.dt_bias = nn.Parameter(torch.empty(heads))
        self.a_log = nn.Parameter(torch.empty(heads))
        self.g_proj = nn.Linear(width, self.values, bias=False)
        self.norm = nn.RMSNorm(self.values // heads, eps=NORM_EPSILON)
        self.out_proj = nn.Linear(self.values, width, bias=False)
        if d_conv:
            self.conv_in = Site()  # [b, t, 2d + values]: q, k, v
            self.conv_out = Site()  # [b, t, 2d + values], before the activation
        else:
            self.movers = self.movers[1:]
        self.q = Site(heads=self.heads)  # [b, t, h, c], of length one
        self.k = Site(heads=self.heads)  # [b, t, h, c], of length one
        self.v = Site(heads=self.heads)  # [b, t, h, e]
        self.beta = Site(heads=self.heads)  # [b, t, h]
        self.decay = Site(heads=self.heads)  # [b, t, h], before softplus: whatever is written here, memory cannot grow
        self.gate = Site()  # [b, t, values], before the activation
        self.delta_out = Site(heads=self.heads)  # [b, t, h, e]

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """As in the authors' release: linear layers Xavier uniform with gain 2^-2.5 (each of q, k and v on its own),
        A uniform in (0, 16), softplus(dt) log-uniform in [0.001, 0.1]."""
        xavier_linears(self, rng, RETENTION_GAIN)
        for part in self.qkv_proj.weight.split([self.width, self.width, self.values]):
            nn.init.xavier_uniform_(part, gain=RETENTION_GAIN, generator=rng)
        if self.conv is not None:
            self.conv.init_weights(rng)
        step_size_bias(self.dt_bias, rng)
        nn.init.ones_(self.norm.weight)
        with torch.no_grad():
            rate = nn.init.uniform_(torch.empty_like(self.a_log), 0, 16, generator=rng)
            self.a_log.copy_(rate.clamp(min=SMALLEST_DECAY_RATE).log())

    def _read(self, x: Tensor, qkv: Tensor) -> tuple[Tensor, ...]:
        """q, k [..., h, c], v [..., h, e], beta and log decay [..., h] for x [..., d] and the convolved q, k, v."""
        parts = F.silu(qkv).split([self.width, self.width, self.values], dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in parts)
        q, k, v = self.q(unit_length(q)), self.k(unit_length(k)), self.v(v)
        beta = self.beta(self.beta_scale * self.beta_proj(x).sigmoid())
        log_decay = -self.a_log.exp() * F.softplus(self.decay(self.decay_proj(x) + self.dt_bias))
        return q * q.shape[-1] ** -0.5, k, v, beta, log_decay

    def _finish(self, out: Tensor, x: Tensor) -> Tensor:
        gate = F.silu(self.gate(self.g_proj(x)))
        return self.out_proj(self.norm(self.delta_out(out)).flatten(-2) * gate)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv_proj(x)
        if self.conv is not None:
            qkv = self.conv_out(self.conv(self.conv_in(qkv)))
        return self._finish(gated_delta_rule(*self._read(x, qkv)), x)

    def initial_state(self, x: Tensor) -> State:
        memory = x.new_zeros(x.shape[0], self.heads, self.width // self.heads, self.values // self.heads)
        return (memory,) if self.conv is None else (memory, self.conv.initial_window(x))

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        qkv = self.qkv_proj(x)
        window: State = ()
        if self.conv is not None:
            qkv, kept = self.conv.step(qkv, state[1])
            window = (kept,)
        out, memory = gated_delta_rule_step(state[0], *self._read(x, qkv))
        return self._finish(out, x), (memory, *window)

    def state_size(self, length: int) -> int:
        return self.width * self.values // self.heads + (0 if self.conv is None else self.conv.window_size(length))

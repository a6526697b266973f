"""H3: a shift state space model and a diagonal one, multiplied together like keys, values and queries."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, init_linears, require_at_least, row_at
from mixerscope.mixers.ops.diagonal_ssm import diagonal_kernel, discretise
from mixerscope.mixers.ops.long_conv import correlate, long_conv, with_skip
from mixerscope.sites import Site

DT_MIN, DT_MAX = 1e-3, 0.1
DECAY_START = 0.5
"""-Re A before training."""


class H3(Mixer):
    """H3 (Fu et al. 2023): out = q . SSM_diag(SSM_shift(k) v^T), per head of `head_dim` channels.

    The shift model is a filter over k with taps K_s[i] = sum_n B[n] C[n + i], so it can hold the last d_state keys; the
    diagonal one (S4D, d_state / 2 complex modes, one kernel a head) remembers the products of key and value.

    `head_dim` is 2 in the published runs, although the paper's table prints 1024, which no width they used can be
    divided by. Larger heads keep more products of key and value per channel and have fewer kernels.
    """

    equation = "k' = K_s * k + D_s k;  y = K_h * (k' v^T) + D_h k' v^T;  out = W_o (q . y) + b"
    paper = "Fu et al. 2023, Hungry hungry hippos: towards language modeling with state space models"
    movers = (Mover("shift SSM", "shift_out"), Mover("diagonal SSM", "ssm_out"))

    def __init__(self, width: int, *, head_dim: int = 2, d_state: int = 1024) -> None:
        super().__init__()
        if head_dim < 1 or width % head_dim:
            raise UserError(f"h3: width = {width} is not divisible by head_dim = {head_dim}")
        require_at_least(2, "h3", {"d_state": d_state})
        if d_state % 2:
            raise UserError(f"h3: d_state = {d_state} must be even, its modes come in conjugate pairs")
        heads, modes = width // head_dim, d_state // 2
        self.head_dim = head_dim
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.shift_b = nn.Parameter(torch.empty(width, d_state))
        self.shift_c = nn.Parameter(torch.empty(width, d_state))
        self.shift_skip = nn.Parameter(torch.empty(width))
        self.a_log = nn.Parameter(torch.empty(heads, modes))
        self.frequency = nn.Parameter(torch.empty(heads, modes))
        self.b = nn.Parameter(torch.empty(heads, modes, 2))  # real and imaginary part
        self.c = nn.Parameter(torch.empty(heads, modes, 2))
        self.dt_log = nn.Parameter(torch.empty(heads))
        self.skip = nn.Parameter(torch.empty(heads))
        self.o_proj = nn.Linear(width, width)
        self.q = Site()  # [b, t, d]
        self.k = Site()  # [b, t, d], before the shift model
        self.v = Site()  # [b, t, d]
        self.shift_out = Site()  # [b, t, d]
        self.kv = Site(heads=heads)  # [b, t, h, c, c]: head, channel of k, channel of v
        self.ssm_out = Site(heads=heads)  # [b, t, h, c, c]
        self.heads_out = Site()  # [b, t, d]

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        init_linears(self, rng, rule)
        modes = self.a_log.shape[1]
        with torch.no_grad():
            self.shift_b.zero_()[:, 0] = 1.0
            bound = self.shift_c.shape[1] ** -0.5
            nn.init.uniform_(self.shift_c, -bound, bound, generator=rng)
            nn.init.normal_(self.shift_skip, generator=rng)
            self.a_log.fill_(math.log(DECAY_START))
            self.frequency.copy_((math.pi * torch.arange(modes)).expand_as(self.frequency))
            self.b.zero_()[..., 0] = 1.0
            nn.init.normal_(self.c, std=0.5**0.5, generator=rng)  # a complex standard normal
            nn.init.uniform_(self.dt_log, math.log(DT_MIN), math.log(DT_MAX), generator=rng)
            nn.init.normal_(self.skip, generator=rng)

    def _heads(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., h, c]."""
        return x.unflatten(-1, (-1, self.head_dim))

    def _out(self, q: Tensor, y: Tensor) -> Tensor:
        """q [..., h, c], y [..., h, c, e] -> [..., d], channels laid out (e, h) as published."""
        # Not as a matrix product: a GPU would make one launch of a quarter of a million products of two numbers.
        return (q.unsqueeze(-1) * y).sum(-2).transpose(-1, -2).flatten(-2)

    def _projected(self, x: Tensor) -> tuple[Tensor, ...]:
        """[b, t, d] -> q, k, v [b, t, d]."""
        if x.device.type == "cpu":
            return self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return _at_once(x, self.q_proj, self.k_proj, self.v_proj)

    def _remembered(self, k: Tensor, v: Tensor) -> Tensor:
        """k, v [b, t, d] -> what the diagonal model holds of their products, [b, t, h, c, c]."""
        length = k.shape[1]
        shift = correlate(self.shift_b, self.shift_c, length)  # [d, t]
        k = self.shift_out(long_conv(k, with_skip(shift, self.shift_skip)))
        kv = self.kv(self._heads(k)[..., :, None] * self._heads(v)[..., None, :])
        kernel = diagonal_kernel(self.a_log, self.frequency, self.b, self.c, self.dt_log.exp(), length)  # [h, t]
        return self.ssm_out(long_conv(kv, with_skip(kernel, self.skip)))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (site(found) for site, found in zip((self.q, self.k, self.v), self._projected(x), strict=True))
        return self.o_proj(self.heads_out(self._out(self._heads(q), self._remembered(k, v))))

    def learn_at(self, x: Tensor, at: Tensor) -> Tensor:
        """One query per document, and what it multiplies."""
        q, (k, v) = self.q_proj(row_at(x, at)), _at_once(x, self.k_proj, self.v_proj)
        return self.o_proj(self._out(self._heads(q), row_at(self._remembered(k, v), at)))

    def initial_state(self, x: Tensor) -> State:
        """The keys the shift model still sees, then the diagonal model's state, real and imaginary part."""
        heads, modes = self.a_log.shape
        state = x.new_zeros(x.shape[0], heads, self.head_dim, self.head_dim, modes)
        return x.new_zeros(x.shape[0], 0, x.shape[1]), state, state

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        keys = torch.cat([state[0], k[:, None]], 1)
        shift = correlate(self.shift_b, self.shift_c, keys.shape[1])
        k = torch.einsum("bsd,ds->bd", keys, shift.flip(1)) + self.shift_skip * k
        kv = self._heads(k)[..., :, None] * self._heads(v)[..., None, :]  # [b, h, c, e]
        abar, cbar = discretise(self.a_log, self.frequency, self.b, self.c, self.dt_log.exp())  # [h, n]
        a_real, a_imag, c_real, c_imag = (p[:, None, None] for p in (abar.real, abar.imag, cbar.real, cbar.imag))
        real = a_real * state[1] - a_imag * state[2] + kv[..., None]
        imag = a_real * state[2] + a_imag * state[1]
        y = 2 * (c_real * real - c_imag * imag).sum(-1) + self.skip[:, None, None] * kv
        kept = keys[:, 1:] if keys.shape[1] == self.shift_b.shape[1] else keys
        return self.o_proj(self._out(self._heads(q), y)), (kept, real, imag)

    def state_size(self, length: int) -> int:
        width, taps = self.shift_b.shape
        return min(length, taps - 1) * width + 2 * self.a_log.numel() * self.head_dim**2


def _at_once(x: Tensor, *linears: nn.Linear) -> tuple[Tensor, ...]:
    """What each makes of x, by one product, and two backward in place of two each: on a GPU, at these sizes, a launch
    takes longer than its numbers."""
    weight, bias = (torch.cat([getattr(linear, name) for linear in linears]) for name in ("weight", "bias"))
    return F.linear(x, weight, bias).chunk(len(linears), -1)

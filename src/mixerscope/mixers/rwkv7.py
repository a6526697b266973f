"""RWKV-7: token shift, then a delta rule with a decay and a learning rate for each channel."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, require_at_least
from mixerscope.mixers.ops.generalised_delta_rule import generalised_delta_rule, generalised_delta_rule_step
from mixerscope.sites import Site

MIXES = 6
"""Receptance, decay, key, value, learning rate and gate each mix in the previous token in their own proportion."""
DECAY_LIMIT = math.exp(-0.5)
"""The decay stays above exp(-exp(-0.5)) = 0.545."""
NORM_EPSILON_PER_CHANNEL = 1e-5


class RWKV7(Mixer):
    """RWKV-7 (Peng et al. 2025): S_t = S_{t-1} (diag(w_t) - n_t^T (a_t * n_t)) + v_t^T k_t; o_t = S_t r_t^T.

    Every input is lerp(x_t, x_{t-1}, mu). With key u_t: n_t = u_t xi scaled to length one in each head, k_t = u_t (1 +
    (a_t - 1) alpha), a_t = sigmoid(lowrank(x)), w_t = exp(-e^(-1/2) sigmoid(lowrank_tanh(x))). Each head's output is
    normalised, the bonus (r_t . (rho * k_t)) v_t is added, and a low-rank gate multiplies the sum.

    Left out: the published model adds the first layer's values to those of later layers, and its MLP shifts tokens
    and squares a ReLU. A mixer sees its own layer only, and the backbone's MLP is the same for all.
    """

    equation = (
        "S_t = S_{t-1} (diag(w_t) - n_t^T (a_t * n_t)) + v_t^T k_t; "
        "y = W_o (g * (GroupNorm(S_t r_t) + (r_t . (rho * k_t)) v_t)); inputs from lerp(x_t, x_{t-1}, mu)"
    )
    paper = "Peng et al. 2025, RWKV-7 'Goose' with expressive dynamic state evolution"
    movers = (Mover("token shift", "shifted"), Mover("generalised delta rule", "delta_out"))

    def __init__(self, width: int, *, heads: int = 1, rank: int = 32) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"rwkv7: width = {width} is not divisible by heads = {heads}")
        require_at_least(1, "rwkv7", {"rank": rank})
        self.heads, self.width = heads, width
        self.mix = nn.Parameter(torch.empty(MIXES, width))
        self.r_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.decay_down, self.decay_up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width)
        self.rate_down, self.rate_up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width)
        self.gate_down, self.gate_up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.removal_scale = nn.Parameter(torch.empty(width))  # xi
        self.key_rate = nn.Parameter(torch.empty(width))  # alpha
        self.bonus = nn.Parameter(torch.empty(heads, width // heads))  # rho
        self.norm_weight = nn.Parameter(torch.empty(width))
        self.norm_bias = nn.Parameter(torch.empty(width))
        self.out_proj = nn.Linear(width, width, bias=False)
        self.shifted = Site()  # [b, t, d]: the input of the position before
        self.r = Site(heads=self.heads)  # [b, t, h, c]
        self.k = Site(heads=self.heads)  # [b, t, h, c]: u_t, before it is split into n_t and k_t
        self.v = Site(heads=self.heads)  # [b, t, h, c]
        self.decay = Site(heads=self.heads)  # [b, t, h, c], before the sigmoid: memory cannot grow, whatever it is
        self.rate = Site(heads=self.heads)  # [b, t, h, c]: a_t
        self.gate = Site()  # [b, t, d]
        self.delta_out = Site(heads=self.heads)  # [b, t, h, c]

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """As in the official code for its first layer (later layers there shift the curves of mu and w): orthogonal
        projections, keys ten times smaller, zero output projection and low-rank inputs, fixed curves over channels."""
        head = self.width // self.heads
        channel = torch.arange(self.width)
        part = channel / self.width
        ramp = channel / max(self.width - 1, 1)
        zigzag = 2 * (channel % head) / max(head - 1, 1) - 1
        zigzag = zigzag * zigzag.abs()
        for row, power in zip(self.mix, (0.2, 0.9, 0.7, 0.7, 0.9, 0.2), strict=True):
            row.copy_(1 - part**power)
        for linear, gain in ((self.r_proj, 1.0), (self.k_proj, 0.1), (self.v_proj, 1.0)):
            nn.init.orthogonal_(linear.weight, gain, generator=rng)
        nn.init.zeros_(self.out_proj.weight)
        for down, up in (
            (self.decay_down, self.decay_up),
            (self.rate_down, self.rate_up),
            (self.gate_down, self.gate_up),
        ):
            nn.init.zeros_(down.weight)
            nn.init.orthogonal_(up.weight, 0.1 * max(1.0, up.in_features / self.width) ** 0.5, generator=rng)
        self.decay_up.bias.copy_(-6 + 6 * ramp + 0.5 + 2.5 * zigzag)
        self.rate_up.bias.copy_(-0.19 + 0.3 * zigzag + 0.4 * (ramp - 0.5))
        self.removal_scale.copy_(0.71 - 0.1 * (ramp - 0.5))
        self.key_rate.fill_(1.02)
        self.bonus.fill_(-0.04)
        self.norm_weight.fill_(rule.depth**-0.7)
        self.norm_bias.zero_()

    def _project(self, x: Tensor, previous: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """The inputs (r, log w, k, v, n, a * n) of the delta rule, and the gate, for x [..., d]."""
        shift = self.shifted(previous) - x
        for_r, for_w, for_k, for_v, for_a, for_g = (x + shift * mu for mu in self.mix.unbind(0))
        heads = (self.heads, -1)
        r = self.r(self.r_proj(for_r).unflatten(-1, heads))
        key = self.k(self.k_proj(for_k).unflatten(-1, heads))
        v = self.v(self.v_proj(for_v).unflatten(-1, heads))
        decay = self.decay(self.decay_up(self.decay_down(for_w).tanh()).unflatten(-1, heads))
        log_decay = -DECAY_LIMIT * decay.sigmoid()
        rate = self.rate(self.rate_up(self.rate_down(for_a)).sigmoid().unflatten(-1, heads))
        gate = self.gate(self.gate_up(self.gate_down(for_g).sigmoid()))
        removal = F.normalize(key * self.removal_scale.view(self.heads, -1), dim=-1)
        k = key * (1 + (rate - 1) * self.key_rate.view(self.heads, -1))
        return (r, log_decay, k, v, removal, rate * removal), gate

    def _finish(self, out: Tensor, inputs: tuple[Tensor, ...], gate: Tensor) -> Tensor:
        r, _, k, v, _, _ = inputs
        out = self.delta_out(out)
        normed = F.layer_norm(out, out.shape[-1:], eps=NORM_EPSILON_PER_CHANNEL * out.shape[-1]).flatten(-2)
        bonus = (r * self.bonus * k).sum(-1, keepdim=True) * v
        return self.out_proj((normed * self.norm_weight + self.norm_bias + bonus.flatten(-2)) * gate)

    def forward(self, x: Tensor) -> Tensor:
        inputs, gate = self._project(x, F.pad(x, (0, 0, 1, -1)))
        return self._finish(generalised_delta_rule(*inputs), inputs, gate)

    def initial_state(self, x: Tensor) -> State:
        head = self.width // self.heads
        return x.new_zeros(x.shape[0], self.heads, head, head), x.new_zeros(x.shape[0], 0, self.width)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        memory, window = state
        inputs, gate = self._project(x, window[:, 0] if window.shape[1] else torch.zeros_like(x))
        out, memory = generalised_delta_rule_step(memory, *inputs)
        return self._finish(out, inputs, gate), (memory, x.unsqueeze(1))

    def state_size(self, length: int) -> int:
        return self.width * self.width // self.heads + min(length, 1) * self.width

"""GLA: linear attention whose state forgets each key channel at its own, input-dependent rate."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, require_at_least
from mixerscope.mixers.initialisation import RETENTION_GAIN, xavier_linears
from mixerscope.mixers.ops.gated_linear_attention import gated_linear_attention, gated_linear_attention_step
from mixerscope.sites import Site

NORM_EPSILON = 1e-5
GATE_TEMPERATURE = 16.0
"""The log of the decay is divided by it, so that memory lasts from the start (the paper's tau)."""


class GLA(Mixer):
    """Gated linear attention (Yang et al. 2023): S_t = diag(a_t) S_{t-1} + k_t v_t^T; o_t = S_t^T q_t / sqrt(c).

    a_t = sigmoid(W_2 W_1 x_t + b)^(1/16), with W_1 of rank `gate_rank`. Keys and queries have half the width, values
    the full width. Each head's output is RMS-normalised and gated by SiLU(W_g x).
    """

    block_norm = "rms"
    equation = (
        "a = sigmoid(W_2 W_1 x + b)^(1/16); S_t = diag(a_t) S_{t-1} + k_t v_t^T; "
        "y = W_o (RMSNorm(S^T q / sqrt(c)) * SiLU(W_g x))"
    )
    paper = "Yang et al. 2023, Gated linear attention Transformers with hardware-efficient training"
    movers = (Mover("gated linear attention", "attention_out"),)

    def __init__(self, width: int, *, heads: int = 4, gate_rank: int = 16) -> None:
        super().__init__()
        if heads < 1 or width % (2 * heads):
            raise UserError(f"gla: width = {width} is not divisible by 2 * heads = {2 * heads}")
        require_at_least(1, "gla", {"gate_rank": gate_rank})
        self.heads = heads
        self.q_proj = nn.Linear(width, width // 2, bias=False)
        self.k_proj = nn.Linear(width, width // 2, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.decay_down = nn.Linear(width, gate_rank, bias=False)
        self.decay_up = nn.Linear(gate_rank, width // 2)
        self.g_proj = nn.Linear(width, width, bias=False)
        self.norm = nn.RMSNorm(width // heads, eps=NORM_EPSILON)
        self.out_proj = nn.Linear(width, width, bias=False)
        self.q = Site(heads=self.heads)  # [b, t, h, c]
        self.k = Site(heads=self.heads)  # [b, t, h, c]
        self.v = Site(heads=self.heads)  # [b, t, h, e]
        self.decay = Site(heads=self.heads)  # [b, t, h, c], before the sigmoid: memory cannot grow, whatever it is
        self.gate = Site()  # [b, t, d], before the activation
        self.attention_out = Site(heads=self.heads)  # [b, t, h, e]

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """As in the authors' release: every linear layer Xavier uniform with gain 2^-2.5."""
        xavier_linears(self, rng, RETENTION_GAIN)
        nn.init.ones_(self.norm.weight)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k [..., h, c], v [..., h, e], log decay [..., h, c] for x [..., d]."""
        heads = (self.heads, -1)
        q, k = self.q(self.q_proj(x).unflatten(-1, heads)), self.k(self.k_proj(x).unflatten(-1, heads))
        v = self.v(self.v_proj(x).unflatten(-1, heads))
        decay = self.decay(self.decay_up(self.decay_down(x)).unflatten(-1, heads))
        log_decay = F.logsigmoid(decay) / GATE_TEMPERATURE
        return q * q.shape[-1] ** -0.5, k, v, log_decay

    def _finish(self, out: Tensor, x: Tensor) -> Tensor:
        gate = F.silu(self.gate(self.g_proj(x)))
        return self.out_proj(self.norm(self.attention_out(out)).flatten(-2) * gate)

    def forward(self, x: Tensor) -> Tensor:
        return self._finish(gated_linear_attention(*self._project(x)), x)

    def initial_state(self, x: Tensor) -> State:
        width = x.shape[1]
        return (x.new_zeros(x.shape[0], self.heads, width // 2 // self.heads, width // self.heads),)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        out, memory = gated_linear_attention_step(state[0], *self._project(x))
        return self._finish(out, x), (memory,)

    def state_size(self, length: int) -> int:
        return self.q_proj.out_features * self.v_proj.out_features // self.heads

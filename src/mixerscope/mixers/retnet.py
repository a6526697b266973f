"""RetNet: retention, linear attention with a fixed decay and a rotation."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, require_at_least
from mixerscope.mixers.initialisation import RETENTION_GAIN, xavier_linears
from mixerscope.mixers.ops.decay_attention import decay_attention, decay_attention_step
from mixerscope.mixers.ops.rotary import rotate
from mixerscope.sites import Site

NORM_EPSILON = 1e-6


class RetNet(Mixer):
    """Multi-scale retention (Sun et al. 2023): S_n = g_h R S_{n-1} + k_n v_n^T; o_n = S_n^T q_n / sqrt(c).

    Head h = 0, 1, ... decays by g_h = 1 - 2^(-5-h); R turns pairs of key channels by fixed angles (`rotary`). Each
    head's output is normalised on its own (the paper's GroupNorm, without weights) and gated by SiLU(W_g x). The
    paper's three rescalings of scores are left out: the normalisation undoes them.
    """

    equation = "o_n = sum_{m<=n} g_h^(n-m) (q_n . R^(n-m) k_m) v_m / sqrt(c);  y = W_o (GroupNorm(o) * SiLU(W_g x))"
    paper = "Sun et al. 2023, Retentive network: a successor to Transformer for large language models"
    movers = (Mover("retention", "retention_out"),)

    def __init__(self, width: int, *, heads: int = 4, expand_v: int = 2, rotary: bool = True) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"retnet: width = {width} is not divisible by heads = {heads}")
        require_at_least(1, "retnet", {"expand_v": expand_v})
        if rotary and width // heads % 2:
            raise UserError(f"retnet: rotary needs an even head size, and width / heads is {width // heads}")
        self.heads, self.rotary = heads, rotary
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, expand_v * width, bias=False)
        self.g_proj = nn.Linear(width, expand_v * width, bias=False)
        self.out_proj = nn.Linear(expand_v * width, width, bias=False)
        self.q = Site(heads=self.heads)  # [b, t, h, c], before the rotation
        self.k = Site(heads=self.heads)  # [b, t, h, c], before the rotation
        self.v = Site(heads=self.heads)  # [b, t, h, e]
        self.gate = Site()  # [b, t, h e], before the activation
        self.retention_out = Site(heads=self.heads)  # [b, t, h, e]

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """As in the official code: Xavier uniform with gain 2^-2.5, the output projection with gain 1."""
        xavier_linears(self, rng, RETENTION_GAIN)
        nn.init.xavier_uniform_(self.out_proj.weight, generator=rng)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k [..., h, c] and v [..., h, e] for x [..., d]."""
        heads = (self.heads, -1)
        q, k = self.q(self.q_proj(x).unflatten(-1, heads)), self.k(self.k_proj(x).unflatten(-1, heads))
        return q * q.shape[-1] ** -0.5, k, self.v(self.v_proj(x).unflatten(-1, heads))

    def _finish(self, out: Tensor, x: Tensor) -> Tensor:
        out = self.retention_out(out)
        normed = F.layer_norm(out, out.shape[-1:], eps=NORM_EPSILON).flatten(-2)
        return self.out_proj(normed * F.silu(self.gate(self.g_proj(x))))

    def _log_decay(self, x: Tensor) -> Tensor:
        """[h], in the precision of x."""
        head = torch.arange(self.heads, dtype=x.dtype, device=x.device)
        return torch.log1p(-torch.exp2(-5 - head))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self._project(x)
        if self.rotary:
            q, k = rotate(q), rotate(k)
        return self._finish(decay_attention(q, k, v, self._log_decay(x).expand(1, x.shape[1], -1)), x)

    def initial_state(self, x: Tensor) -> State:
        c, e = x.shape[1] // self.heads, self.v_proj.out_features // self.heads
        return (x.new_zeros(x.shape[0], self.heads, c, e),)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self._project(x)
        memory = _turn_back(state[0]) if self.rotary else state[0]
        out, memory = decay_attention_step(memory, q, k, v, self._log_decay(x).expand(1, -1))
        return self._finish(out, x), (memory,)

    def state_size(self, length: int) -> int:
        return self.q_proj.out_features * self.v_proj.out_features // self.heads


def _turn_back(memory: Tensor) -> Tensor:
    """The memory [b, h, c, e] as seen from the next position; this spares carrying a position counter."""
    columns = memory.transpose(-1, -2)  # [b, h, e, c]
    return rotate(columns.flatten(1, 2).unsqueeze(1), -1).view(columns.shape).transpose(-1, -2)

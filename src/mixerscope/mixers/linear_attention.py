"""Linear attention with the Taylor feature map of Based."""

import torch
from torch import Tensor, nn

from mixerscope.mixers.base import Mixer, Mover, State, require_at_least, row_at
from mixerscope.sites import Site

EPSILON = 1e-12


class LinearAttention(Mixer):
    """Taylor linear attention (Arora et al. 2024): weights 1 + s + s^2/2 with s = q . k / sqrt(f), normalised."""

    equation = "y_t = W_o sum_{j<=t} w_tj v_j / (sum_{j<=t} w_tj);  w_tj = 1 + s + s^2/2, s = q_t . k_j / sqrt(f)"
    paper = "Arora et al. 2024, Simple linear attention language models balance the recall-throughput tradeoff"
    movers = (Mover("linear attention", "attention_out"),)

    def __init__(self, width: int, *, feature_dim: int = 8) -> None:
        super().__init__()
        require_at_least(1, "linear_attention", {"feature_dim": feature_dim})
        self.q_proj = nn.Linear(width, feature_dim, bias=False)
        self.k_proj = nn.Linear(width, feature_dim, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.q = Site()  # [b, t, f]
        self.k = Site()  # [b, t, f]
        self.v = Site()  # [b, t, d]
        self.attention_out = Site()  # [b, t, d]

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        q, k, v = self.q(self.q_proj(x)), self.k(self.k_proj(x)), self.v(self.v_proj(x))
        # At these lengths the t x t matrix is smaller than the running sum over 1 + f + f^2 features.
        scores = torch.einsum("btf,bsf->bts", q, k) * q.shape[-1] ** -0.5
        past = torch.ones(t, t, dtype=x.dtype, device=x.device).tril()
        weights = (1 + scores + scores.square() / 2) * past
        weights = weights / (weights.sum(-1, keepdim=True) + EPSILON)
        return self.o_proj(self.attention_out(torch.einsum("bts,bsd->btd", weights, v)))

    def learn_at(self, x: Tensor, at: Tensor) -> Tensor:
        """One query per document: keys and values need not be computed, since q . (W_k x) = (W_k^T q) . x, and a sum
        of values is W_v of the sum. Not as products of matrices, which would be a thousand with one row each."""
        q = self.q_proj(row_at(x, at))
        seen_by = q @ self.k_proj.weight
        scores = (x * seen_by[:, None]).sum(-1) * q.shape[-1] ** -0.5
        past = torch.arange(x.shape[1], device=x.device) <= at[:, None]
        weights = (1 + scores + scores.square() / 2) * past
        weights = weights / (weights.sum(-1, keepdim=True) + EPSILON)
        return self.o_proj(self.v_proj((weights[..., None] * x).sum(1)))

    def _features(self, x: Tensor) -> Tensor:
        """[b, f] -> [b, 1 + f + f^2], so that features(q) . features(k) = 1 + s + s^2/2."""
        scaled = x * x.shape[-1] ** -0.25
        squares = torch.einsum("bf,bg->bfg", scaled, scaled).flatten(1) * 0.5**0.5
        return torch.cat([torch.ones_like(x[:, :1]), scaled, squares], 1)

    def initial_state(self, x: Tensor) -> State:
        """The sums so far of features(k) v^T and of features(k)."""
        features = 1 + self.q_proj.out_features + self.q_proj.out_features**2
        return x.new_zeros(x.shape[0], features, self.v_proj.out_features), x.new_zeros(x.shape[0], features)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self._features(self.q_proj(x)), self._features(self.k_proj(x)), self.v_proj(x)
        memory, mass = state[0] + k[:, :, None] * v[:, None], state[1] + k
        read = torch.einsum("bf,bfd->bd", q, memory) / ((q * mass).sum(1, keepdim=True) + EPSILON)
        return self.o_proj(read), (memory, mass)

    def state_size(self, length: int) -> int:
        features = 1 + self.q_proj.out_features + self.q_proj.out_features**2
        return features * (self.v_proj.out_features + 1)

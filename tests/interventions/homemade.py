"""A module nobody at Mixerscope wrote: odd names, tuples, keyword arguments, one fused path, no config."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Averager(nn.Module):
    """Every position gets the mean of itself and all before it; returns a tuple, as many do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inside = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, *, hidden: Tensor) -> tuple[Tensor, None]:
        count = torch.arange(1, hidden.shape[1] + 1, dtype=hidden.dtype)[:, None]
        mean = self.inside(hidden).cumsum(1) / count
        # The weights of `gate` are used, the module is not called: hooks on it never fire.
        return mean * torch.sigmoid(F.linear(hidden, self.gate.weight, self.gate.bias)), None


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = Averager(width)
        self.wide = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mean(hidden=x)[0]
        return x + self.wide(x)


class HomeMade(nn.Module):
    def __init__(self, symbols: int, width: int, depth: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(symbols, width)
        self.stack = nn.ModuleList(Layer(width) for _ in range(depth))
        self.out = nn.Linear(width, symbols)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        x = self.table(ids)
        for layer in self.stack:
            x = layer(x)
        return {"scores": self.out(x)}


SITES = {
    "embed": "table",
    **{
        f"blocks.{i}.{name}": f"stack.{i}{place}"
        for i in range(2)
        for name, place in {
            "resid_pre": ":input",
            "mixer_in": ".mean:input[hidden]",
            "mixer_out": ".mean:output[0]",
            "mlp_in": ".wide:input",
            "mlp_out": ".wide",
            "resid_post": "",
        }.items()
    },
}

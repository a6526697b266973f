"""A mixer of one's own: a gated moving average. `mixerscope check examples/04_own_mixer.py:Decay` examines it."""

import torch
from torch import Tensor, nn

import mixerscope as ms


class Decay(ms.Mixer):
    """Per-channel exponential moving average behind a gate."""

    equation = "h_t = a h_{t-1} + (1 - a) x_t;  y_t = h_t * sigmoid(W x_t + b)"
    movers = (ms.Mover("moving average", "average_out"),)

    def __init__(self, width: int, *, start: float = 0.0) -> None:
        super().__init__()
        self.start, self.rate, self.gate = start, nn.Parameter(torch.empty(width)), nn.Linear(width, width)
        self.average_out = ms.Site()

    def init_weights(self, rng: torch.Generator, rule: ms.InitRule) -> None:
        super().init_weights(rng, rule)
        nn.init.constant_(self.rate, self.start)

    def forward(self, x: Tensor) -> Tensor:
        a, h, out = self.rate.sigmoid(), torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = a * h + (1 - a) * x[:, t]
            out.append(h)
        return self.average_out(torch.stack(out, 1)) * self.gate(x).sigmoid()

    def state_size(self, length: int) -> int:
        return length * self.gate.in_features  # `step` is inherited, which carries the whole history


if __name__ == "__main__":
    ms.register("mixer", "decay")(Decay)
    spec = ms.preset("small", "ar", "pattern")
    spec["model"]["options"] = {"layers": [{"mixer": "decay"}, {"mixer": "linear_attention"}]}
    spec["train"]["lr"] = 1e-2
    result = ms.run(spec, "runs", progress=False)  # trains, patches, puts the route to the proof, and judges
    print(result.verdicts["key"].sentence())

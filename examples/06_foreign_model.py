"""A model that is not ours: name its places, check that they can be trusted, and find where a token's trace goes."""

import torch
from torch import nn

import mixerscope as ms


class Recurrent(nn.Module):
    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.table, self.memory, self.out = (
            nn.Embedding(symbols, 16),
            nn.GRU(16, 16, batch_first=True),
            nn.Linear(16, symbols),
        )

    def forward(self, ids):
        return self.out(self.memory(self.table(ids))[0])


task = ms.AR(num_pairs=3, num_keys=6, num_values=6)
sites = {"embed": "table", "blocks.0.mixer_in": "memory:input", "blocks.0.mixer_out": "memory:output[0]"}
model = ms.adapt(Recurrent(task.vocab_size).to(torch.float64), sites, head="out")
pairs = ms.make_pairs(task, ms.PairSettings(documents=16, slots=("key",)), data_seed=0)
print(ms.check_model(model, pairs.original))
grid = ms.interchange(model, pairs, ms.plan_grid(model, pairs, directions=["restore"]))
for row in ms.effect_table(grid, model).rows():
    if row["metric"] == "likelihood":
        print(row["site"], row["role"], row["status"], f"{row['value']:.4f}", row["reason"])

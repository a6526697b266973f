"""A model that is not ours: name its places, check that they can be trusted, and find where a token's trace goes."""

import torch
from torch import nn

from mixerscope.interventions import adapt, check_model, interchange, make_pairs, plan_grid
from mixerscope.spec import InterventionSpec
from mixerscope.tasks import AR


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


task = AR(num_pairs=3, num_keys=6, num_values=6)
sites = {"embed": "table", "blocks.0.mixer_in": "memory:input", "blocks.0.mixer_out": "memory:output[0]"}
model = adapt(Recurrent(task.vocab_size).to(torch.float64), sites, head="out")
pairs = make_pairs(task, InterventionSpec(documents=16, slots=("key",)), data_seed=0)
print(check_model(model, pairs.original))
for cell, measured in interchange(model, pairs, plan_grid(model, pairs, directions=["restore"])).cells.items():
    print(cell.site, cell.role, measured.status, f"{measured.effects.likelihood.mean():.4f}", measured.reason)

"""Patch one activation by hand, then let the engine do it everywhere."""

import torch

import mixerscope as ms

task = ms.AR(num_pairs=3, num_keys=6, num_values=6)
spec = ms.RunSpec.model_validate({"task": task, "model": {"architecture": "mamba", "width": 16}})
model = ms.build_model(spec.model, task.vocab_size, seed=0)
pairs = ms.make_pairs(task, ms.PairSettings(documents=64), data_seed=0)
original, corrupted = pairs.original, pairs.corrupted["key"]

site, key = "blocks.0.mixer.conv_out", original.roles["key"]
rows = torch.arange(len(original))
with torch.no_grad(), ms.record(model, [site]) as found:
    model(original.tokens)


def restore(activation: torch.Tensor) -> torch.Tensor:
    activation = activation.clone()
    activation[rows, key] = found[site][rows, key]
    return activation


with torch.no_grad(), ms.edit(model, {site: restore}):
    print("by hand:", model(corrupted.tokens).shape)
grid = ms.interchange(model, pairs)
print("everywhere:", grid)
print(ms.effect_table(grid, model).to_polars().head())

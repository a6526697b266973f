"""A stage of your own: what is done with every trained model, with settings, an artifact and an id of its own.

In a file, `mixerscope run ... --use norms.py:Norms --set stages.local/Norms.documents=32` does the same.
"""

from dataclasses import dataclass
from typing import ClassVar

import mixerscope as ms


@dataclass(frozen=True)
class StreamNorms(ms.JsonArtifact):
    """Mean length of the residual stream's vectors, by site."""

    file: ClassVar[str] = "stream_norms.json"
    norms: dict[str, float]


@ms.register("stage", "norms")
class Norms(ms.Stage):
    """How long the vectors of the residual stream are, block by block."""

    artifacts: ClassVar[tuple] = (StreamNorms,)
    documents: int = 32

    def run(self, trained: ms.Trained) -> list[ms.Result]:
        pairs = ms.make_pairs(trained.first.task, ms.PairSettings(documents=self.documents))
        found = []
        for model in trained.models:
            held = ms.activations(model, pairs.original, ms.boundary_sites(model), ["query"])
            norms = {site: float(x.norm(dim=-1).mean()) for (site, _), x in held.items()}
            found.append(ms.Done((StreamNorms(norms),)))
        return found


data = ms.preset("small", "ar", "attention")
data["train"]["steps"] = 20
result = ms.run({**data, "stages": {"norms": {"documents": 8}}}, "runs", progress=False)
print(result.read(StreamNorms).norms)

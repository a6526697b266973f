"""One tool that measures patching grids when told to: `python -m benchmarks.grid_worker`, started by `versions.Worker`.

Runs on this version of Mixerscope and on 0.1, which get the same weights and the same documents as a file of tensors.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import mixerscope
from mixerscope import interventions
from mixerscope.interventions import Cell, Pairs, interchange, plan_grid
from mixerscope.model import Model, build_model
from mixerscope.spec import ModelSpec
from mixerscope.tasks import Batch

Likelihoods = dict[Cell, Tensor]
Tool = Callable[[Model, Pairs, list[Cell]], Likelihoods]
LAYERS = 2
# Larger than the published initialisation: an edit must move the answer for tools to disagree about it.
INIT = "small_model"


def ours(model: Model, pairs: Pairs, plan: list[Cell]) -> Likelihoods:
    return {cell: measured.effects.likelihood for cell, measured in interchange(model, pairs, plan).cells.items()}


def tool_named(name: str) -> Tool:
    if name == "mixerscope":
        return ours
    from benchmarks import peers  # which import other people's packages

    return getattr(peers, name)


def tensors_of(model: Model, pairs: Pairs) -> dict[str, Tensor]:
    """All that a worker needs to know of them."""
    found = {f"weight {name}": value for name, value in model.state_dict().items()}
    found |= {"tokens": pairs.original.tokens, "targets": pairs.original.targets}
    found |= {f"role {name}": at for name, at in pairs.original.roles.items()}
    found |= {f"corrupted {slot}": batch.tokens for slot, batch in pairs.corrupted.items()}
    return found | {f"other {slot}": symbols[:, 0] for slot, symbols in pairs.reads.others.items()}


class Bench:
    """A model and documents, made of tensors."""

    def __init__(self, request: dict[str, Any]) -> None:
        tensors = load_file(request["tensors"])
        weights = {name.removeprefix("weight "): x for name, x in tensors.items() if name.startswith("weight ")}
        spec = ModelSpec(architecture=request["architecture"], width=request["width"], layers=LAYERS, init=INIT)
        self.model = build_model(spec, len(weights["token_embedding.weight"]), seed=0).eval()
        self.model.load_state_dict(weights)
        self.tensors, self.tool = tensors, tool_named(request["tool"])
        self.run({"slots": request["slots"], "cells": request["cells"][:1]})  # first-use costs are nobody's grid

    def pairs(self, slots: list[str]) -> Pairs:
        roles = {name.removeprefix("role "): x for name, x in self.tensors.items() if name.startswith("role ")}
        targets = self.tensors["targets"]
        original = Batch(self.tensors["tokens"], targets, roles, {})
        corrupted = {slot: Batch(self.tensors[f"corrupted {slot}"], targets, roles, {}) for slot in slots}
        others = {slot: self.tensors[f"other {slot}"] for slot in slots}
        if "rivals" in Pairs.__dataclass_fields__:  # what 0.1 calls them
            return Pairs(original, corrupted, others)  # pyright: ignore[reportArgumentType]
        answer = interventions.Reads.answer(original)
        by_slot = {slot: symbols[:, None] for slot, symbols in others.items()}
        return Pairs(original, corrupted, interventions.Reads(answer.names, answer.positions, answer.targets, by_slot))

    def plan(self, cells: Any, pairs: Pairs) -> list[Cell]:
        if cells == "everything":  # every site, role and direction
            return plan_grid(self.model, pairs)
        if cells == "with judging":
            return interventions.full_plan(self.model, pairs)
        return [Cell(*cell) for cell in cells]

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        pairs = self.pairs(request["slots"])
        plan = self.plan(request["cells"], pairs)
        start = time.process_time()
        with torch.no_grad():
            found = self.tool(self.model, pairs, plan)
        seconds = time.process_time() - start
        if request.get("keep"):
            save_file({"likelihoods": torch.stack([found[cell] for cell in plan])}, request["keep"])
        return {"seconds": seconds, "cells": len(plan)}

    def statuses(self, request: dict[str, Any]) -> dict[str, Any]:
        """Cells by what became of them, and how many runs the measured ones took."""
        pairs = self.pairs(request["slots"])
        found = interchange(self.model, pairs, self.plan(request["cells"], pairs)).cells.values()
        counts = {status: sum(one.status == status for one in found) for status in {one.status for one in found}}
        return {**counts, "runs": len({id(one.effects) for one in found if one.status == "measured"})}

    def memory(self, request: dict[str, Any]) -> dict[str, float]:
        """Resident megabytes after 5 grids and after 50."""
        used: dict[int, float] = {}
        for count in range(1, 51):
            self.run(request)
            if count in (5, 50):
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                used[count] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        growth = used[50] / used[5] - 1
        return {"after_5_mb": round(used[5], 1), "after_50_mb": round(used[50], 1), "growth": round(growth, 4)}


def main() -> None:
    # What is printed by others must not be taken for an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    bench: Bench | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if Path(str(mixerscope.__file__)).parent != Path(request["source"]):
            raise SystemExit(f"meant to run {request['source']}, not {mixerscope.__file__}")
        answer: dict[str, Any] = {}
        if request["do"] == "load":
            bench = Bench(request)
        else:
            assert bench is not None, "something must be loaded first"
            answer = getattr(bench, request["do"])(request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

"""How many models of a cohort fit on a GPU at once."""

import threading

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from mixerscope.machine import Machine
from mixerscope.model import Model, build_model
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.training.objective import cross_entropy

COPIES = 6
"""Of a model's parameters: themselves, two moments, gradients, and what an update needs: most where it is plain."""
BACKWARD = 2.0
"""What a step holds at its worst, over what its forward pass keeps for the backward one."""
SHARE = 0.85
"""Of the memory that is free, so that the allocator's gaps and the libraries' workspaces find room."""

BUILDING = threading.Lock()
"""Cohorts in other threads go on training while one compiles or captures, but none does so beside it, and nobody may
empty the allocator's cache during a capture."""


def member_bytes(spec: RunSpec) -> int:
    """What one more member needs, with margins: from a forward pass of one model over one batch."""
    batch = spec.task.sample(spec.train.batch_size, stream(spec.data_seed, "check"), "train")
    model: Model = build_model(spec.model, spec.task.vocab_size, spec.seed)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    read, targets = batch.scored()
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        # Holding the loss holds what is kept, so that no two of these share an address one after the other.
        loss = cross_entropy(model(batch.tokens, read), targets)
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return int(COPIES * parameters + BACKWARD * sum(kept.values())) + loss.element_size()


def fitting(members: list[int], spec: RunSpec, machine: Machine) -> list[list[int]]:
    """Members like `spec` in as few parts as fit on the machine one after the other; in one on a CPU."""
    if machine.device == "cpu":
        return [members]
    if machine.memory_gib is None:
        with BUILDING:
            torch.cuda.empty_cache()  # what torch keeps for later use is free
        room = SHARE * torch.cuda.mem_get_info()[0]
    else:
        room = machine.memory_gib * 2**30
    # One model at a time is always tried: the estimate has margins.
    most = max(1, int(room // member_bytes(spec)))
    parts = -(-len(members) // most)
    size = -(-len(members) // parts)
    return [members[start : start + size] for start in range(0, len(members), size)]

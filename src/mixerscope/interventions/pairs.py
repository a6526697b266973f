"""The frozen set of (original, corrupted) documents that serves every cell, every seed and every architecture."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.errors import UnknownName, UserError
from mixerscope.randomness import stream
from mixerscope.spec import InterventionSpec
from mixerscope.tasks import Batch, Task

_ROLE = re.compile(r"(?P<name>[a-z_]+)(?P<offset>[+-]\d+)?")


@dataclass(frozen=True)
class Pairs:
    """Documents with one query each, and for each slot the same documents with the token at that slot changed."""

    original: Batch
    corrupted: Mapping[str, Batch]
    """By slot; targets stay those of the original."""

    def __len__(self) -> int:
        return len(self.original)

    def chunks(self, size: int) -> Iterator["Pairs"]:
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Pairs(self.original[part], {slot: batch[part] for slot, batch in self.corrupted.items()})

    def positions(self, role: str) -> Tensor:
        """[n] positions of a role, or of an offset from one such as `key+2`."""
        match = _ROLE.fullmatch(role)
        if match is None:
            raise UserError(f"{role!r} is not a role; write a name such as 'key' or an offset such as 'key+2'")
        if match["name"] not in self.original.roles:
            raise UnknownName("role", match["name"], self.original.roles)
        at = self.original.roles[match["name"]] + int(match["offset"] or 0)
        length = self.original.tokens.shape[1]
        outside = int(((at < 0) | (at >= length)).sum())
        if outside:
            raise UserError(f"role {role!r} lies outside the document in {outside} of {len(self)} documents")
        return at

    def sha256(self) -> str:
        sha = hashlib.sha256(self.original.sha256().encode())
        for slot, batch in sorted(self.corrupted.items()):
            sha.update(f"{slot}{batch.sha256()}".encode())
        return sha.hexdigest()


def make_pairs(task: Task, spec: InterventionSpec, data_seed: int) -> Pairs:
    """The pairs of a task: the same ones for the same task, spec and seed."""
    task = task.single_query()
    original = task.sample(spec.documents, stream(data_seed, "pairs"), "test")
    corrupted = {}
    for slot in spec.slots:
        if slot not in task.slots:
            raise UnknownName("slot", slot, task.slots)
        rng = stream(data_seed, "corrupt", slot)
        corrupted[slot] = task.corrupt(original, slot, rng, spec.symbols, spec.avoid_present)
        changed = (corrupted[slot].tokens != original.tokens).sum(1)
        if not bool(torch.all(changed == 1)):
            raise AssertionError(f"corrupting {slot!r} must change exactly one token of every document")
    return Pairs(original, corrupted)

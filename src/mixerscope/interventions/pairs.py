"""The frozen set of (original, corrupted) documents that serves every cell, every seed and every architecture."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixerscope.errors import UnknownName, UserError
from mixerscope.randomness import stream
from mixerscope.spec import InterventionSpec
from mixerscope.tasks import Batch, Task

_ROLE = re.compile(r"(?P<name>[a-z_]+)(?P<offset>[+-]\d+)?")
_POSITION = re.compile(r"pos:(?P<position>\d+)")
JOINT = "&"
"""Between roles that are edited together: `key&value`."""


@dataclass(frozen=True)
class Pairs:
    """Documents with one query each, and for each slot the same documents with the token at that slot changed."""

    original: Batch
    corrupted: Mapping[str, Batch]
    """By slot; targets stay those of the original."""
    rivals: Mapping[str, Tensor] = field(default_factory=dict)
    """By slot: [n] the answer that the corrupted document has, `UNSCORED` where it has none."""

    def __len__(self) -> int:
        return len(self.original)

    def chunks(self, size: int) -> Iterator["Pairs"]:
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Pairs(
                self.original[part],
                {slot: batch[part] for slot, batch in self.corrupted.items()},
                {slot: rivals[part] for slot, rivals in self.rivals.items()},
            )

    def to(self, device: torch.device) -> "Pairs":
        """The same pairs on a device."""
        return Pairs(
            self.original.to(device),
            {slot: batch.to(device) for slot, batch in self.corrupted.items()},
            {slot: rivals.to(device) for slot, rivals in self.rivals.items()},
        )

    def places(self, role: str) -> Tensor:
        """[n, p] positions of a role, or of several joined such as `key&value+1`."""
        parts = role.split(JOINT)
        if len(set(parts)) < len(parts):
            raise UserError(f"role {role!r} names a position twice")
        return torch.stack([self.positions(part) for part in parts], 1)

    def positions(self, role: str) -> Tensor:
        """[n] positions of one role, of an offset from one such as `key+2`, or of `pos:7` in every document."""
        return role_positions(self.original, role)

    def sha256(self) -> str:
        sha = hashlib.sha256(self.original.sha256().encode())
        for slot, batch in sorted(self.corrupted.items()):
            sha.update(f"{slot}{batch.sha256()}".encode())
        return sha.hexdigest()


def role_positions(batch: Batch, role: str) -> Tensor:
    """[n] positions of one role, of an offset from one such as `key+2`, or of `pos:7` in every document."""
    length = batch.tokens.shape[1]
    explicit, match = _POSITION.fullmatch(role), _ROLE.fullmatch(role)
    if explicit is not None:
        at = torch.full((len(batch),), int(explicit["position"]), device=batch.tokens.device)
    elif match is not None:
        at = batch.role(match["name"]) + int(match["offset"] or 0)
    else:
        raise UserError(f"{role!r} is not a role; write a name such as 'key', an offset such as 'key+2', or 'pos:7'")
    outside = int(((at < 0) | (at >= length)).sum())
    if outside:
        raise UserError(f"role {role!r} lies outside the document in {outside} of {len(batch)} documents")
    return at


def make_pairs(task: Task, spec: InterventionSpec, data_seed: int) -> Pairs:
    """The pairs of a task: the same ones for the same task, spec and seed."""
    task = task.single_query()
    original = task.sample(spec.documents, stream(data_seed, "pairs"), "test")
    corrupted: dict[str, Batch] = {}
    rivals: dict[str, Tensor] = {}
    for slot in spec.slots or task.slots[:1]:
        if slot not in task.slots:
            raise UnknownName("slot", slot, task.slots)
        rng = stream(data_seed, "corrupt", slot)
        corrupted[slot] = task.corrupt(original, slot, rng, spec.symbols, spec.avoid_present)
        changed = (corrupted[slot].tokens != original.tokens).sum(1)
        if not bool(torch.all(changed == 1)):
            raise AssertionError(f"corrupting {slot!r} must change exactly one token of every document")
        rivals[slot] = task.read_answers(corrupted[slot])[:, 0]
    return Pairs(original, corrupted, rivals)

"""A training that was interrupted, as it is kept until it is done: tensors, and a header that says what they are."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mixerscope.errors import CorruptFile

if TYPE_CHECKING:
    from torch import Tensor

HEADER, SUM = "mixerscope", "sha256"
LENGTH_BYTES = 8
"""In front of a safetensors file, the length of the JSON that follows."""
LARGEST_HEADER = 100 << 20
"""Bytes: the limit of the format itself."""


@dataclass(frozen=True)
class Checkpoint:
    """Where the training of a cohort stands between two steps."""

    file: ClassVar[str] = "checkpoint.safetensors"
    header: Mapping[str, Any]
    tensors: Mapping[str, "Tensor"]

    def to_bytes(self) -> bytes:
        import safetensors.torch

        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        notes = {HEADER: json.dumps(self.header, allow_nan=False), SUM: _sum(tensors)}
        return safetensors.torch.save(tensors, notes)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        import safetensors
        import safetensors.torch

        notes = _notes(data)
        try:
            tensors = safetensors.torch.load(data)
        except safetensors.SafetensorError as error:
            raise CorruptFile(f"this is no safetensors file: {error}") from error
        if notes.get(SUM) != _sum(tensors):
            raise CorruptFile("its bytes are not those that were written")
        return cls(_header(notes), tensors)

    @staticmethod
    def header_of(start: bytes) -> dict[str, Any]:
        """The header alone, from a file's beginning: `header_bytes` says how much of it that takes."""
        return _header(_notes(start))

    @staticmethod
    def header_bytes(start: bytes) -> int:
        """How many bytes of a file hold the header, by its first few."""
        length = int.from_bytes(start[:LENGTH_BYTES], "little")
        if len(start) < LENGTH_BYTES or length > LARGEST_HEADER:
            raise CorruptFile("this is no safetensors file")
        return LENGTH_BYTES + length


def _notes(data: bytes) -> dict[str, str]:
    end = Checkpoint.header_bytes(data)
    try:
        notes = json.loads(data[LENGTH_BYTES:end]).get("__metadata__")
    except (ValueError, AttributeError, RecursionError) as error:
        raise CorruptFile("this is no safetensors file") from error
    if not isinstance(notes, dict):
        raise CorruptFile("this safetensors file is no checkpoint")
    return notes


def _header(notes: Mapping[str, str]) -> dict[str, Any]:
    try:
        header = json.loads(notes.get(HEADER, ""))
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptFile("this safetensors file is no checkpoint") from error
    if not isinstance(header, dict):
        raise CorruptFile("this safetensors file is no checkpoint")
    return header


def _sum(tensors: Mapping[str, "Tensor"]) -> str:
    import torch

    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()

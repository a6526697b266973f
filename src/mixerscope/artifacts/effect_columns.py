"""The same file as `effects`, read as columns: what a table over many runs needs, without a cell's object or torch."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import safetensors
import safetensors.numpy

from mixerscope.errors import CorruptFile

METRICS = ("likelihood", "accuracy", "logit", "logit_difference", "kl")
"""What is measured of one run over the documents."""
SHARE = "share"
"""(edited - unedited) / (target - unedited) of the mean likelihood: 1 is full restoration, or full damage."""
BEST = "best"
"""Share of documents for which the edit at this role moves the likelihood most, among the single roles of the same
slot, direction, site and edit, and moves it towards the target at all; ties go to the role that the plan has first.
Places that are no role, such as `value+2`, take part where the grid has them at every site; else they have no row."""
COLUMNS = (*METRICS, SHARE, BEST)
NO_GAP = "corrupting changes too little for a share of it to be a number"


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of text: every word once, and which of them stands in each row; -1 for none."""

    words: tuple[str, ...]
    codes: np.ndarray


@dataclass(frozen=True, eq=False)
class EffectColumns:
    """A patching grid with a row for each cell: `share`, `share_low`, `share_high` and so on are columns."""

    file: ClassVar[str] = "effects.safetensors"
    size: int
    columns: Mapping[str, np.ndarray | Coded]
    """Numbers are not a number where there is none; `head` is -1 where all of the activation is edited."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        try:
            return cls._of(header_of(data), safetensors.numpy.load(data))
        except (safetensors.SafetensorError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise CorruptFile(f"this is no table of effects: {type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        size = len(arrays["cells.head"])
        coded = {name: _coded(words, arrays[f"cells.{name}"], size) for name, words in header["words"].items()}
        first_read = str(header["facts"].get("first_read", "answer"))
        reads = coded.get("read") or Coded(("",), np.zeros(size, dtype=np.int16))
        places = [place_of(site) for site in coded["site"].words]
        components = tuple(dict.fromkeys(component for _, component in places))
        numbers = np.array([components.index(component) for _, component in places], dtype=np.int16)
        layers = np.array([layer for layer, _ in places], dtype=np.int64)
        summary = {metric: arrays[f"summary.{metric}"] for metric in COLUMNS}
        if any(values.shape != (size, 3) for values in summary.values()):
            raise ValueError("its parts do not fit together")
        columns: dict[str, np.ndarray | Coded] = {
            "site": coded["site"],
            "layer": layers[coded["site"].codes],
            "component": Coded(components, numbers[coded["site"].codes]),
            **{name: coded[name] for name in ("slot", "role", "direction", "edit", "status")},
            "read": Coded(tuple(word or first_read for word in reads.words), reads.codes),
            "head": arrays["cells.head"],
            "reason": _reasons(coded["reason"], summary[SHARE][:, 0]),
            "n": np.full(size, int(header["facts"]["documents"]), dtype=np.int64),
        }
        for metric, values in summary.items():
            columns |= {metric: values[:, 0], f"{metric}_low": values[:, 1], f"{metric}_high": values[:, 2]}
        return cls(size, columns)


def header_of(data: bytes) -> dict[str, Any]:
    """What the file says in words."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["effects"])


def _coded(words: list[str], codes: np.ndarray, size: int) -> Coded:
    if codes.shape != (size,) or (size and not 0 <= codes.min() <= codes.max() < len(words)):
        raise ValueError("its parts do not fit together")
    return Coded(tuple(map(str, words)), codes)


def _reasons(stored: Coded, share: np.ndarray) -> Coded:
    """A share that is no number has a reason, if only that there was nothing to restore."""
    said = np.array([bool(word) for word in stored.words], dtype=bool)[stored.codes]
    codes = np.where(np.isnan(share) & ~said, len(stored.words), stored.codes)
    return Coded((*stored.words, NO_GAP), codes)


_BLOCK = re.compile(r"blocks\.(?P<layer>\d+)\.(?P<name>.+)")


def place_of(site: str) -> tuple[int, str]:
    """`blocks.1.mixer.conv_out` -> (1, 'mixer.conv_out'); what is not in a block comes before the first."""
    match = _BLOCK.fullmatch(site)
    return (int(match["layer"]), match["name"]) if match else (0, site)

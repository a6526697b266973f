"""The same file as `effects`, read as columns: what a table over many runs needs, without a cell's object or torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from pydantic_core import from_json

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
UNSIGNED = {np.dtype(f"<i{size}"): np.dtype(f"<u{size}") for size in (2, 4, 8)}
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
            layout, start = _layout(data)
            return cls._of(_words_of(layout), _Arrays(data, layout, start))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise CorruptFile(f"this is no table of effects: {type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, header: Mapping[str, Any], arrays: "_Arrays") -> Self:
        size = len(arrays["cells.head"])
        coded = {name: _coded(words, arrays[f"cells.{name}"], size) for name, words in header["words"].items()}
        first_read = str(header["facts"].get("first_read", "answer"))
        reads = coded.get("read") or Coded(("",), np.zeros(size, dtype=np.int16))
        layers, components, numbers = _places(coded["site"].words)
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
    return _words_of(_layout(data)[0])


def _words_of(layout: Mapping[str, Any]) -> dict[str, Any]:
    return from_json(layout["__metadata__"]["effects"])


def _layout(data: bytes) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and where its tensors begin."""
    start = 8 + int.from_bytes(data[:8], "little")
    return from_json(data[8:start]), start


class _Arrays:
    """Tensors of a safetensors file where they lie: of many files few are asked for, and copying all takes the time."""

    types: ClassVar = {"I16": np.dtype("<i2"), "I32": np.dtype("<i4"), "I64": np.dtype("<i8"), "F32": np.dtype("<f4")}

    def __init__(self, data: bytes, layout: Mapping[str, Any], start: int) -> None:
        self.data = data
        self.layout = layout
        self.start = start

    def __getitem__(self, name: str) -> np.ndarray:
        said = self.layout[name]
        begin, end = said["data_offsets"]
        if min(begin, *said["shape"]) >= 0:
            found = np.ndarray(said["shape"], self.types[said["dtype"]], self.data, self.start + begin)
            if end - begin == found.nbytes:
                return found
        raise ValueError(f"{name} has not the size that it should have")


@lru_cache(maxsize=64)
def _places(sites: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
    """Of each site: its layer, and the number of its component among those that are there."""
    places = [place_of(site) for site in sites]
    components = tuple(dict.fromkeys(component for _, component in places))
    numbers = np.array([components.index(component) for _, component in places], dtype=np.int16)
    return np.array([layer for layer, _ in places], dtype=np.int64), components, numbers


def _coded(words: list[str], codes: np.ndarray, size: int) -> Coded:
    # Below zero is far above as a number without a sign.
    if codes.shape != (size,) or (size and codes.view(UNSIGNED[codes.dtype]).max() >= len(words)):
        raise ValueError("its parts do not fit together")
    return Coded(tuple(map(str, words)), codes)


def _reasons(stored: Coded, share: np.ndarray) -> Coded:
    """A share that is no number has a reason, if only that there was nothing to restore."""
    missing, codes = np.isnan(share), stored.codes
    if missing.any():
        said = np.array([bool(word) for word in stored.words], dtype=bool)[stored.codes]
        codes = np.where(missing & ~said, len(stored.words), stored.codes)
    return Coded((*stored.words, NO_GAP), codes)


_BLOCK = re.compile(r"blocks\.(?P<layer>\d+)\.(?P<name>.+)")


def place_of(site: str) -> tuple[int, str]:
    """`blocks.1.mixer.conv_out` -> (1, 'mixer.conv_out'); what is not in a block comes before the first."""
    match = _BLOCK.fullmatch(site)
    return (int(match["layer"]), match["name"]) if match else (0, site)

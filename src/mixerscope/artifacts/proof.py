"""What became of a model when routes were put to the proof, document by document, as it is kept.

On disk: one safetensors file. Judging reads it beside the effects of patching, so it needs no model.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import safetensors
import safetensors.numpy

from mixerscope.artifacts.base import Frames
from mixerscope.errors import CorruptFile
from mixerscope.showing import counted

if TYPE_CHECKING:  # tables of many runs are made without torch, which takes longer to import than they take to read
    from torch import Tensor

USUAL = ""
"""The documents that were patched; other sets have a name."""


@dataclass(frozen=True, eq=False)
class TestedRoute:
    """One route through a model: everything beside it corrupted, and everything beside it clean."""

    slot: str
    carriers: tuple[str, ...]
    """Who carries the information at each station between the corrupted token and where the answer is read."""
    on: str
    """Which documents."""
    gap: "Tensor"
    """[n] whether corrupting the slot changes the answer from a right one to a wrong one: the documents that count."""
    sufficient: "Tensor"
    """[n] how far the route alone, all else corrupted, brings the answer's logit difference back; 1 is all the way."""
    necessary: "Tensor"
    """[n] how far corrupting the route alone takes it away."""
    answered: "Tensor"
    """[n] whether the route alone, all else corrupted, gives the right answer."""
    kept: "Tensor"
    """[n] whether the answer is still right where the route alone is corrupted."""

    def brings_back(self, halfway: float) -> "Tensor":
        """[counting] whether the route is sufficient: it goes more than half-way, and the answer is right again."""
        return ((self.sufficient > halfway) & self.answered)[self.gap]

    def takes_away(self, halfway: float) -> "Tensor":
        """[counting] whether the route is necessary: corrupting it goes more than half-way, and the answer is gone."""
        return ((self.necessary > halfway) & ~self.kept)[self.gap]


@dataclass(frozen=True, eq=False)
class Unasked:
    """What stands behind a block, where the answer is read, of a value that was not asked for."""

    slot: str
    """The value."""
    block: int
    gap: "Tensor"
    """[n] the documents that count, as above, and that can be asked something else."""
    share: "Tensor"
    """[n] how far it brings the answer's logit difference back once the value is asked for."""
    answered: "Tensor"
    """[n] whether the answer is right then."""
    needed: "Tensor"
    """[n] whether the answer is lost where that is taken away of what stands there."""

    def kept_out(self, halfway: float) -> "Tensor":
        """[counting] whether the value did not arrive unasked: neither half of the way nor the answer comes back; nor
        does the answer go without it, where it is a quarter of the way: less than that is how edits scatter."""
        return self.keeps_out(halfway)[self.gap]

    def keeps_out(self, halfway: float) -> "Tensor":
        """[n] the same, and that the document counts."""
        needed = self.needed & (self.share > halfway / 2)
        return (self.share <= halfway) & ~self.answered & ~needed & self.gap


@dataclass(frozen=True, eq=False)
class Unmoved:
    """Documents whose answer does not go when a slot is corrupted."""

    slot: str
    stays: "Tensor"
    """[n] whether the answer is right, and stays so with every other token that was tried there."""
    moved: "Tensor"
    """[n] how far the answer moves with these tokens, at most, against what is said where another place matches what is
    asked, so that nothing has to be guessed; 1 is as far as it usually does where the answer goes with them."""

    def whatever(self, least: float) -> "Tensor":
        """[n] whether the slot has no part in the answer: it stays, and moves less than `least`."""
        return self.stays & (self.moved < least)


@dataclass(frozen=True, eq=False)
class Followed:
    """Counterfactual documents whose answer the task predicts, of fresh ones that could be changed so."""

    kind: str
    before: "Tensor"
    """[n] whether the document was answered rightly before it was changed; empty where all of them were chosen so."""
    right: "Tensor"
    """[n] whether the changed one is answered as predicted."""
    stays: "Tensor | None" = None
    """[n] whether the answer of before is still given; proofs of before this was looked at do not know."""

    def given_up(self) -> "Tensor":
        """[right before] whether the answer, which no longer is one, is not given any more."""
        assert self.stays is not None, "this proof did not look"
        return ~self.stays[self.before]


@dataclass(frozen=True, eq=False)
class Variant:
    """Documents of another size than those that were trained on."""

    name: str
    guessing: float
    right: "Tensor"
    """[n] whether they are answered rightly."""
    reason: str = ""
    """Why this model cannot take them, where it cannot."""


@dataclass(frozen=True, eq=False, repr=False)
class Proof(Frames):
    """Routes, counterfactuals and other documents that a model was tried with."""

    file: ClassVar[str] = "proof.safetensors"
    routes: tuple[TestedRoute, ...]
    followed: tuple[Followed, ...] = ()
    variants: tuple[Variant, ...] = ()
    unasked: tuple[Unasked, ...] = ()
    unmoved: tuple[Unmoved, ...] = ()

    def shaded(self) -> tuple[str, ...]:
        """The column of shares."""
        return ("share",)

    def sentence(self) -> str:
        """One line for people."""
        tried = [f"{route.slot}: {' → '.join(route.carriers)}" for route in self.routes]
        told = f" ({', '.join(tried[:4])}{', ...' if len(tried) > 4 else ''})" if tried else ""
        said = f"{counted(len(tried), 'route')} tried{told}"
        return f"{said}, {counted(len(self.followed), 'counterfactual')}, {counted(len(self.variants), 'other size')}"

    def route(self, slot: str, carriers: tuple[str, ...], on: str = USUAL) -> TestedRoute | None:
        """The one that was tried, if it was."""
        for route in self.routes:
            if (route.slot, route.carriers, route.on) == (slot, carriers, on):
                return route
        return None

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per test, with its mean over the documents that count."""
        for route in self.routes:
            test = f"route of the {route.slot}: {' → '.join(route.carriers)}"
            for name, passed in (("sufficient", route.brings_back(0.5)), ("necessary", route.takes_away(0.5))):
                yield _row(f"{test}, {name}", route.on, passed)
        for unasked in self.unasked:
            test = f"block {unasked.block} leaves the {unasked.slot} where it is unless asked"
            yield _row(test, USUAL, unasked.kept_out(0.5))
        for unmoved in self.unmoved:
            yield _row(f"answered whatever the {unmoved.slot} is", USUAL, unmoved.whatever(0.2))
        for followed in self.followed:
            yield _row(f"follows: {followed.kind}", USUAL, followed.right)
            if followed.stays is not None:
                yield _row(f"gives the old answer up: {followed.kind}", USUAL, followed.given_up())
        for variant in self.variants:
            yield _row("answers", variant.name, variant.right)

    def to_bytes(self) -> bytes:
        import safetensors.torch
        from torch import Tensor

        header: dict[str, Any] = {"version": 6}
        tensors: dict[str, Tensor] = {}
        for kind in _KINDS:
            header[kind] = []
            for number, record in enumerate(getattr(self, kind)):
                words: dict[str, Any] = {}
                for each in fields(record):
                    value = getattr(record, each.name)
                    if isinstance(value, Tensor):
                        tensors[f"{kind}.{number}.{each.name}"] = value.contiguous()
                    else:
                        words[each.name] = value
                header[kind].append(words)
        return safetensors.torch.save(tensors, metadata={"proof": json.dumps(header)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        import torch

        # A copy: what lies in the file's own bytes cannot be written to.
        return cls.in_numpy(data, lambda array: torch.from_numpy(array.copy()))

    @classmethod
    def in_numpy(cls, data: bytes, made: Callable[[np.ndarray], Any] = lambda array: array) -> Self:
        """The same with numpy's arrays in place of tensors, which `rows` is content with."""
        try:
            size = int.from_bytes(data[:8], "little")
            header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["proof"])
            arrays: dict[str, dict[str, np.ndarray]] = {}
            for name, array in safetensors.numpy.load(data).items():
                start, _, last = name.rpartition(".")
                arrays.setdefault(start, {})[last] = array
            found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
            for kind, record in _KINDS.items():
                called = "asked" if kind == "unasked" and header["version"] < 4 else kind
                for number, words in enumerate(header.get(called, ())):
                    own = arrays.get(f"{called}.{number}", {})
                    if len({len(array) for array in own.values()}) > 1:
                        raise ValueError("its parts do not fit together")
                    if kind == "followed" and header["version"] == 1:
                        # They were made of the documents that were patched, and counted where those were right.
                        own = {"before": np.empty(0, dtype=bool), "right": own["right"][own["counts"]]}
                    if called == "asked":
                        # They looked whether what a block writes for a question brings its answer back, as it should.
                        own |= {"share": 1 - own["share"], "answered": ~own["answered"]}
                    if kind == "unasked" and header["version"] < 6:  # nobody looked
                        own |= {"needed": np.zeros_like(own["gap"])}
                    if kind == "routes":
                        words = {**words, "carriers": tuple(words["carriers"])}
                        if header["version"] < 3:  # nobody looked at the answers, so shares are all there is
                            own |= {"answered": np.ones_like(own["gap"]), "kept": np.zeros_like(own["gap"])}
                    found[kind].append(record(**words, **{name: made(array) for name, array in own.items()}))
            return cls(**{kind: tuple(records) for kind, records in found.items()})
        except (safetensors.SafetensorError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise CorruptFile(f"this is no proof: {type(error).__name__}: {error}") from error


_KINDS: dict[str, type[Any]] = {
    "routes": TestedRoute,
    "followed": Followed,
    "variants": Variant,
    "unasked": Unasked,
    "unmoved": Unmoved,
}
"""What a proof is made of; the last two were not in the first versions."""


def _row(test: str, on: str, passed: "Tensor") -> dict[str, Any]:
    count = len(passed)
    value = int(passed.sum()) / count if count else None
    return {"test": test, "documents": on or "as patched", "n": count, "share": value}

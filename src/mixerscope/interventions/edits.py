"""Edits: what is written in place of an activation. All have one shape, [n, p, ...] in and out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixerscope.artifacts.effects import SWAP
from mixerscope.errors import UnknownName, UserError
from mixerscope.randomness import stream


@dataclass(frozen=True)
class Here:
    """What an edit can see: some documents, at one site and the p positions of one role."""

    site: str
    role: str
    base: Tensor
    """[n, p, ...] what is there in the documents that run; a copy, which an edit may change and give back."""
    source: Tensor
    """[n, p, ...] what is there in the other documents of their pairs."""
    documents: slice
    """Which of all documents these are."""
    everyone: Tensor | None = None
    """[all documents, p, ...] what is there in all documents that run; for edits that ask for it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the activation at one position."""
        return tuple(self.base.shape[2:])


class Edit(ABC):
    """One way to replace an activation."""

    sees_everyone: ClassVar[bool] = False
    """Whether `Here.everyone` is needed, which costs one more pass over the documents."""
    mixes_documents: ClassVar[bool] = False
    """Whether a document receives what was found in others, so that all must be of one size there."""

    @abstractmethod
    def value(self, here: Here) -> Tensor:
        """[n, p, ...] what to write."""


@dataclass(frozen=True)
class Swap(Edit):
    """The other document's activation: the patch, or interchange intervention."""

    def value(self, here: Here) -> Tensor:
        return here.source


@dataclass(frozen=True)
class Zero(Edit):
    """Zeros."""

    def value(self, here: Here) -> Tensor:
        return torch.zeros_like(here.base)


@dataclass(frozen=True)
class Mean(Edit):
    """The mean over all documents that run, at the role's own positions."""

    sees_everyone = mixes_documents = True

    def value(self, here: Here) -> Tensor:
        return _everyone(here).mean(0).expand_as(here.base)


@dataclass(frozen=True)
class Resample(Edit):
    """Another document's activation at the same role; which one is drawn once, and no document gets its own."""

    seed: int = 0
    sees_everyone = mixes_documents = True

    def value(self, here: Here) -> Tensor:
        everyone = _everyone(here)
        if len(everyone) < 2:
            raise UserError("resample needs at least 2 documents: there is no other one to take from")
        # A cycle through all documents in random order: uniform over partners, never oneself.
        order = torch.randperm(len(everyone), generator=stream(self.seed, "resample"))
        partner = torch.empty_like(order)
        partner[order] = order.roll(1)
        return everyone[partner[here.documents].to(everyone.device)]


@dataclass(frozen=True)
class Noise(Edit):
    """Gaussian noise on top, `scale` times the spread of each number over the documents."""

    scale: float = 1.0
    seed: int = 0
    sees_everyone = True

    def value(self, here: Here) -> Tensor:
        everyone = _everyone(here)
        rng = stream(self.seed, "noise", here.site, here.role)
        # Drawn for all documents at once and in double precision: the same whatever the chunks and the precision.
        drawn = torch.randn(everyone.shape, generator=rng, dtype=torch.float64)[here.documents]
        return here.base + self.scale * everyone.std(0, correction=0) * drawn.to(here.base)


@dataclass(frozen=True)
class Add(Edit):
    """A vector on top, the same for every document."""

    vector: Tensor

    def value(self, here: Here) -> Tensor:
        if tuple(self.vector.shape) != here.shape:
            found = list(self.vector.shape)
            raise UserError(f"add: the vector has shape {found}, site {here.site!r} has {list(here.shape)}")
        return here.base + self.vector.to(here.base)


@dataclass(frozen=True)
class ProjectOut(Edit):
    """The activation without its part in the subspace that `directions` [k, ...] span."""

    directions: Tensor

    def value(self, here: Here) -> Tensor:
        if tuple(self.directions.shape[1:]) != here.shape:
            found = list(self.directions.shape[1:])
            raise UserError(f"project out: directions have shape {found}, site {here.site!r} has {list(here.shape)}")
        directions = self.directions.flatten(1).double()
        _, sizes, axes = torch.linalg.svd(directions, full_matrices=False)
        basis = axes[sizes > sizes.max() * 1e-10].to(here.base)  # [k, d], without directions that repeat others
        flat = here.base.flatten(2)
        return (flat - flat @ basis.T @ basis).reshape(here.base.shape)


EDITS: Mapping[str, Edit] = {
    SWAP: Swap(),
    "zero": Zero(),
    "mean": Mean(),
    "resample": Resample(),
    "noise": Noise(),
}
"""Edits by the name a cell calls them, with settings that may be changed: `noise:scale=0.5,seed=1`."""


def find_edit(name: str, named: Mapping[str, Edit]) -> Edit:
    """The edit a cell names: one of the caller's, else one of ours."""
    found = named[name] if name in named else read_edit(name, named)[1]
    if not isinstance(found, Edit):
        raise UserError(f"edit {name!r} is {found!r}, not an Edit; give one made of a class that has `value(here)`")
    return found


def read_edit(text: str, others: Iterable[str] = ()) -> tuple[str, Edit]:
    """An edit as people write it, `noise:scale=0.50`; and the one way of writing it that ids use, `noise:scale=0.5`."""
    name, _, settings = text.partition(":")
    if name not in EDITS:
        raise UnknownName("edit", name, [*EDITS, *others])
    usual = vars(EDITS[name])
    chosen, said = dict(usual), set[str]()
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        if key not in usual:
            raise UserError(f"edit {text!r}: {name} has no setting {key!r}; it has {', '.join(usual) or 'none'}")
        if key in said:
            raise UserError(f"edit {text!r}: {key} is given twice")
        said.add(key)
        try:
            chosen[key] = type(usual[key])(value)
            sound = math.isfinite(chosen[key])
        except (ValueError, OverflowError):
            sound = False
        if not sound:
            raise UserError(f"edit {text!r}: {key} takes a number, as in {name}:{key}={usual[key]}")
    written = ",".join(f"{key}={chosen[key]}" for key in usual if chosen[key] != usual[key])
    return f"{name}:{written}" if written else name, type(EDITS[name])(**chosen)


def _everyone(here: Here) -> Tensor:
    assert here.everyone is not None, "an edit that needs all documents says so"
    return here.everyone

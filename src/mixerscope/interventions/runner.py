"""How edits are run: what the engine asks of a model, whoever wrote it.

There are two ways: our own models run on from the edit (`resume.Resumed`), a foreign module runs from its tokens again
(`whole_pass.WholePass`). A runner keeps nothing of a run, so that it can be used on stacked weights as on plain ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from torch import Tensor

AFTER = "the position comes after the one that is read"
OTHER = "the edit makes the document the other one of its pair, whose run is known"


@dataclass(frozen=True)
class Unedited:
    """One run over n documents of which nothing is edited."""

    tokens: Tensor
    """[n, t]"""
    read: Tensor
    """[n, q] the positions of each document where logits are read."""
    logits: Tensor
    """[n, q, v] there."""
    cache: Mapping[str, Tensor]
    """By site: [n, t, ...]; not a number where it was not computed."""


@dataclass(frozen=True)
class Standing:
    """How the positions of a role lie to those that are read, over some documents: all that a proof needs of them."""

    positions: int
    """In each document."""
    all_after: bool
    none_before: bool
    some_at: bool
    all_read: bool = False
    """They are all that is read, in every document."""
    all_changed: bool = False
    """They are all at which the documents of a pair have different tokens."""

    @classmethod
    def of(cls, positions: Tensor, read: Tensor, changed: Tensor) -> Self:
        """From positions [n, p], read [n, q], and whether tokens differ [n, t]."""
        ahead = positions[:, :, None] - read[:, None]
        kept = changed.scatter(1, positions, False)
        facts = (ahead > 0).all(), (ahead >= 0).all(), (ahead == 0).any(), (ahead == 0).any(1).all(), ~kept.any()
        return cls(positions.shape[1], *(bool(fact) for fact in facts))


class Runner(Protocol):
    """One model: how its edits are run, and what is known of them without running."""

    def run(self, tokens: Tensor, read: Tensor, sites: Iterable[str], places: Tensor | None = None) -> Unedited:
        """The unedited run; keeps the named sites, and what `leaves` and `stand_in` need beside them.

        With `places` [n, p], those and the positions that are read are all that will be edited or looked at.
        """
        ...

    def leaves(self, base: Unedited, site: str, positions: Tensor, value: Tensor) -> Tensor:
        """[r n, q, ...] what the model has where logits are read, short of the logits, after writing value
        [r n, p, ...] at positions [r n, p]: n documents, r edits of each."""
        ...

    def read_out(self, left: Tensor) -> Tensor:
        """Logits [..., v] of what `leaves` gives [..., w]."""
        ...

    def no_path(self, site: str, standing: Standing) -> str | None:
        """Why an edit at this site and such positions cannot reach the logits that are read, or None."""
        ...

    def added_to(self, site: str) -> str | None:
        """The site of the stream that what is swapped in there is added to, if that is all that becomes of it."""
        ...

    def stand_in(self, site: str, added_to_same: bool) -> str:
        """The site where writing the other document's activation is the same edit, as late as possible.

        `added_to_same`: both documents hold the same at `added_to(site)`.
        """
        ...

    def is_other(self, site: str, standing: Standing) -> bool:
        """Whether writing the other document's activation there leaves nothing of the document that runs."""
        ...

    def stand_ins(self, sites: Iterable[str]) -> set[str]:
        """Sites that may run in place of the named ones."""
        ...

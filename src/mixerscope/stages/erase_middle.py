"""Erasing at one position in the middle: does the answer there miss it, and do later ones?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mixerscope.artifacts import ErasedOnce
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import right_answers, right_with_each, site_vectors
from mixerscope.probing.erasure import chance_of
from mixerscope.randomness import stream
from mixerscope.stages.counting import DIGITS, lost, most_frequent, rounded, without
from mixerscope.stages.erase_methods import IRRELEVANT, WHOLE, Known, irrelevant_label, random_like
from mixerscope.stages.erase_recurrence import Inside
from mixerscope.stages.vectors import Vectors
from mixerscope.tasks import UNSCORED, Batch


@dataclass(frozen=True)
class Middle:
    """A position, and documents in which something is erased there."""

    members: Members
    at: int
    batch: Batch

    @property
    def asked(self) -> bool:
        """Whether some document is asked for an answer there, and behind it."""
        return all(bool((self.batch.targets[:, here] != UNSCORED).any()) for here in self._there_and_behind)

    @cached_property
    def _clean(self) -> list[list[list[float]]]:
        return self._shares(right_answers(self.members, self.batch).sum(1, keepdim=True))

    def in_stream(self, drawn: Vectors, label: str, draws: int, seed: int, found: list[list[ErasedOnce]]) -> None:
        """Adds, by model, every boundary and way of erasing, found in what other documents hold at the position."""
        if not all(bool(part.any()) for part in vars(drawn.parts).values()):
            return
        members, irrelevant = self.members, irrelevant_label(drawn, label, seed)
        chance = round(chance_of(drawn.labels[label][drawn.parts.judge]), DIGITS)
        for site, x in site_vectors(members, drawn.batch, members.first.boundaries(), drawn.positions).items():
            known = Known.of(x, drawn, label)
            before = rounded(known.probe.accuracy.tolist())
            for method in (*WHOLE, IRRELEVANT):
                eraser = known.eraser(method, irrelevant)
                random = random_like(method, eraser, known, draws, stream(0, "random subspace, once", site, method))
                each = torch.cat([eraser.matrix[:, None], random.variance], 1)
                mean = known.found.mean[:, None].expand(-1, each.shape[1], -1, -1)
                right = right_with_each(members, self.batch, site, self._here_alone, each, mean).sum(2)
                left, ranks = rounded(known.residual(eraser)), eraser.rank.tolist()
                said = [(site, method, ranks[k], chance, before[k], left[k]) for k in range(len(members))]
                self._note(said, known.unseen(eraser), right, found)

    def in_state(
        self,
        site: str,
        method: str,
        inside: Inside,
        probed: Sequence[tuple[float, float, float]],
        unseen: Sequence[float | None],
        found: list[list[ErasedOnce]],
    ) -> None:
        """The same of a recurrent state, after one step alone; by model what a probe reads by chance, before and after
        is that of all positions."""
        right = inside.right(self.members, self.batch, self.at).sum(1, keepdim=True)
        ranks = inside.ranks
        self._note([(site, method, ranks[k], *probed[k]) for k in range(len(self.members))], unseen, right, found)

    def _note(
        self,
        said: Sequence[tuple[str, str, int, float, float, float]],
        unseen: Sequence[float | None],
        right: Tensor,
        found: list[list[ErasedOnce]],
    ) -> None:
        """Writes down what was erased, what is left, and what right answers [k, v, t] say of it: the first of the
        edits is its own, the others are controls."""
        guessing = [most_frequent(self.batch.targets[:, here]) for here in self._there_and_behind]
        rows = zip(found, said, unseen, self._shares(right), self._clean, strict=True)
        for own, one, left, shares, clean in rows:
            (now, *random_now), (later, *random_later) = shares
            damages = lost(clean[0][0], now, guessing[0]), lost(clean[1][0], later, guessing[1])
            own.append(ErasedOnce(*one, now, later, *damages, tuple(random_now), tuple(random_later), left))

    @property
    def _there_and_behind(self) -> tuple[slice, slice]:
        return slice(self.at, self.at + 1), slice(self.at + 1, None)

    def _here_alone(self, x: Tensor, matrix: Tensor, mean: Tensor) -> Tensor:
        here = torch.arange(x.shape[2], device=x.device)[:, None] == self.at
        return torch.where(here, without(x, matrix, mean), x)

    def _shares(self, right: Tensor) -> list[list[list[float]]]:
        """By model, there and behind: the accuracy of each edit, of how many answers are right [k, v, t]."""
        asked = (self.batch.targets != UNSCORED).sum(0)
        shares = [right[..., here].sum(-1).double() / asked[here].sum() for here in self._there_and_behind]
        return [[rounded(row) for row in own] for own in torch.stack(shares, 1).tolist()]

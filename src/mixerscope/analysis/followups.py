"""Measurements a verdict asks for where the grid leaves it in doubt: other positions, several at once, single heads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from mixerscope.analysis.rules import OFFSETS
from mixerscope.analysis.stats import Estimate, mean_estimate, ratio_estimate
from mixerscope.interventions import Grid, Pairs
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.plan import Direction
from mixerscope.interventions.resume import pick, run_and_record, swap
from mixerscope.model import Model
from mixerscope.sites import edit
from mixerscope.training.objective import answer_likelihood

DOCUMENTS_AT_ONCE = 64
"""On a CPU; a GPU takes as many as fit."""


class FollowUps:
    """Shares of edits that are no cells of the grid, over the documents of the grid."""

    def __init__(self, grid: Grid, model: Model, slot: str) -> None:
        self.grid, self.model, self.slot = grid, model, slot
        self.device = device_of(model)
        self.at_once = batching(model, grid.pairs, DOCUMENTS_AT_ONCE).documents

    def share(
        self, site: str, roles: Sequence[str], direction: Direction = "restore", head: int | None = None
    ) -> Estimate:
        """The share of an edit at several positions at once, or of one head [b, t, h, c] alone."""
        with self._evaluating():
            edited = torch.cat(list(self._likelihoods(site, roles, direction, head))).cpu()
        original = self.grid.original.likelihood.double()
        corrupted = self.grid.corrupted[self.slot].likelihood.double()
        moved = edited.double() - corrupted if direction == "restore" else original - edited.double()
        found = ratio_estimate(moved, original - corrupted)
        assert found is not None, "follow-ups are made only where the gap is large enough for shares to exist"
        return found

    def gap(self, role: str) -> Estimate | None:
        """What replacing a role's token by that of another document takes off the likelihood of the answer.

        For slots the grid did not corrupt. None where there is no such role, or one token in all documents.
        """
        original = self.grid.pairs.original
        if role not in original.roles:
            return None
        tokens, at = original.tokens, original.roles[role][:, None]
        mine = tokens.gather(1, at)[:, 0]
        other = mine.clone()
        for shift in range(1, len(mine)):
            other = other.where(other != mine, mine.roll(shift))
        changed = other != mine
        if not bool(changed.any()):
            return None
        read, answers = original.answers()
        corrupted = tokens.scatter(1, at, other[:, None])
        with self._evaluating():
            parts = zip(*(x.to(self.device).split(self.at_once) for x in (corrupted, read, answers)), strict=True)
            after = torch.cat([answer_likelihood(self.model(t, r[:, None])[:, 0], a) for t, r, a in parts]).cpu()
        return mean_estimate((self.grid.original.likelihood.double() - after.double())[changed])

    def offsets(self) -> list[str]:
        """Positions around the corrupted token that every document has and that are not a role under another name."""
        roles = self.grid.pairs.original.roles
        start, length = roles[self.slot], self.grid.pairs.original.tokens.shape[1]
        return [
            f"{self.slot}{offset:+d}"
            for offset in OFFSETS
            if bool(((start + offset >= 0) & (start + offset < length)).all())
            and not any(torch.equal(start + offset, at) for at in roles.values())
        ]

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.model.train(was_training)

    def _likelihoods(self, site: str, roles: Sequence[str], direction: Direction, head: int | None) -> Iterator[Tensor]:
        for chunk in self.grid.pairs.to(self.device).chunks(self.at_once):
            read, answers = chunk.original.answers()
            base, source = chunk.corrupted[self.slot], chunk.original
            if direction == "break":
                base, source = source, base
            _, activations = run_and_record(self.model, source.tokens, read, [site])
            given, positions = activations[site], [chunk.positions(role) for role in roles]

            def put(x: Tensor, given: Tensor = given, positions: list[Tensor] = positions) -> Tensor:
                for at in positions:
                    value = pick(given, at)
                    if head is not None:
                        own = pick(x, at)
                        value = torch.cat([own[:, :head], value[:, head : head + 1], own[:, head + 1 :]], 1)
                    x = swap(x, at, value)
                return x

            with edit(self.model, {site: put}):
                logits = self.model(base.tokens, read[:, None])[:, 0]
            yield answer_likelihood(logits, answers)


def distinct_roles(pairs: Pairs) -> list[str]:
    """Roles without those that stand where an earlier one stands in every document."""
    kept: list[str] = []
    for role, at in pairs.original.roles.items():
        if not any(torch.equal(at, pairs.original.roles[other]) for other in kept):
            kept.append(role)
    return kept

"""What a model does, found without the verdict: by running it on changed documents and by cutting it at boundaries."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mixerscope.model import Model
from mixerscope.planted import Planted
from mixerscope.randomness import stream
from mixerscope.sites import Tap, edit, record
from mixerscope.tasks import Batch


class Run(NamedTuple):
    """What stands at every boundary, and what is said."""

    boundaries: dict[str, Tensor]
    said: Tensor


@dataclass(eq=False)
class Subject:
    """A planted model with one embedding, and documents of its task."""

    planted: Planted
    seed: int
    documents: int

    @cached_property
    def model(self) -> Model:
        return self.planted.build(self.planted.task, self.seed)

    @cached_property
    def batches(self) -> dict[str, Batch]:
        """`clean`, and by slot: its token becomes another of its own class that does not stand in the document."""
        task = self.planted.task
        clean = task.sample(self.documents, stream(self.seed, "direct"), "test")
        return {"clean": clean} | {
            slot: task.corrupt(clean, slot, stream(self.seed, "direct", slot), "slot-class", avoid_present=True)
            for slot in task.slots
        }

    @cached_property
    def answers(self) -> Tensor:
        return self.batches["clean"].answers()[1]

    @cached_property
    def boundaries(self) -> list[str]:
        return ["embed", *(f"blocks.{i}.resid_post" for i in range(len(self.model.blocks)))]

    @cached_property
    def runs(self) -> dict[str, Run]:
        """By batch, nothing edited."""
        found = {}
        for name, batch in self.batches.items():
            with record(self.model, self.boundaries) as seen:
                said = self.says(batch)
            found[name] = Run(seen, said)
        return found

    @torch.no_grad()
    def says(self, batch: Batch) -> Tensor:
        query = batch.role("query")
        return self.model(batch.tokens[:, : int(query.max()) + 1], query[:, None])[:, 0].argmax(-1)

    @property
    def answered(self) -> Tensor:
        """[n] whether the clean document is."""
        return self.runs["clean"].said == self.answers

    def lost(self, slot: str) -> Tensor:
        """[n] whether the document is answered and its corruption takes the answer."""
        return self.answered & (self.runs[slot].said != self.answers)

    def at(self, carrier: str) -> Tensor:
        """[n, t] true at the places of a carrier: `value`, `key+3`, `value&next_key`. Documents end at the query."""
        clean = self.batches["clean"]
        where = torch.zeros(len(clean), int(clean.role("query").max()) + 1, dtype=torch.bool)
        for place in carrier.split("&"):
            role, _, offset = place.partition("+")
            where.scatter_(1, clean.role(role)[:, None] + int(offset or 0), True)
        return where

    def along(self, carriers: tuple[str, ...], runs: str, token_of: str) -> Tensor:
        """What is said if documents run with one token's embedding from others, and only what the carriers hold of
        that survives: at every boundary, all else is what it is in an untouched run."""
        untouched, other = self.runs[runs].boundaries, self.runs[token_of].boundaries["embed"]

        def survives(site: str, where: Tensor) -> Tap:
            if site == "embed":
                return lambda x: torch.where(where, other, x)
            return lambda x: torch.where(where, x, untouched[site])

        places = zip(self.boundaries, carriers, strict=True)
        with edit(self.model, {site: survives(site, self.at(carrier)[..., None]) for site, carrier in places}):
            return self.says(self.batches[runs])

    def sufficient(self, slot: str, carriers: tuple[str, ...]) -> Tensor:
        """[n] whether the corruption takes the answer, and the clean token brings it back along the carriers alone."""
        return self.lost(slot) & (self.along(carriers, slot, "clean") == self.answers)

    def necessary(self, slot: str, carriers: tuple[str, ...]) -> Tensor:
        """[n] whether the answer is lost where the carriers alone bring the corrupted token."""
        return self.answered & (self.along(carriers, "clean", slot) != self.answers)

    def restored(self, slot: str, site: str, carrier: str, head: int | None = None) -> Tensor:
        """[n] whether the corruption takes the answer, and the clean activation at one place brings it back."""
        clean, where = self._clean(site), self.at(carrier)

        def tap(x: Tensor) -> Tensor:
            mask = where.view(*where.shape, *[1] * (x.dim() - 2)).repeat(1, 1, *x.shape[2:])
            if head is not None:
                mask[:, :, :head] = mask[:, :, head + 1 :] = False
            return torch.where(mask, clean, x)

        with edit(self.model, {site: tap}):
            return self.lost(slot) & (self.says(self.batches[slot]) == self.answers)

    def _clean(self, site: str) -> Tensor:
        """What stands at a site of the clean run."""
        known = self.runs["clean"].boundaries
        if site not in known:
            with record(self.model, [site]) as seen:
                self.says(self.batches["clean"])
            known.update(seen)
        return known[site]

    def follows(self, kind: str) -> Tensor:
        """[m] whether the model gives the answer that the task predicts for a counterfactual, where there is one."""
        other = self.planted.task.counterfactual(kind, self.batches["clean"], stream(self.seed, "direct", kind))
        other = other[other.labels["changed"].bool()]
        return self.says(other) == other.answers()[1]


@cache
def embedded(planted: Planted, seed: int) -> Subject:
    """Fractions need more documents than all or nothing."""
    numbers = [*planted.accuracy, *planted.follows.values()]
    numbers += [number for route in planted.routes for slot in ("key", "value") for number in route.alone(slot)]
    return Subject(planted, seed, 32 if set(numbers) <= {0.0, 1.0} else 192)


def agrees(found: Tensor, declared: float) -> bool:
    """Whether a share is what was declared: exactly all or none, else within four standard errors."""
    error = (declared * (1 - declared) / len(found)) ** 0.5
    return abs(found.double().mean().item() - declared) <= 4 * error

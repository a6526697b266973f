"""Whether an adapted model can be trusted, site by site: what precedes every grid on a foreign module.

The forward pass must not be random. Each site must fire exactly once, hold [documents, positions, ...], leave every
logit as it is when its own activation is written back, and move logits at its position or later and none before when
noise is added. The residual stream must add up where the sites that say so are named. At a boundary it must be all
that one block hands to the next, and the parts of a block must be all that moves information between its positions.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from mixerscope.artifacts.base import Frames
from mixerscope.artifacts.effects import place_of
from mixerscope.errors import UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.cache import evaluating
from mixerscope.interventions.resume import pick, swap
from mixerscope.interventions.selftest import TOLERANCE, Tester, noise_for, tolerance_for
from mixerscope.interventions.subjects import Foreign, relative_difference
from mixerscope.showing import counted
from mixerscope.sites import edit, record
from mixerscope.tasks import Batch

FEW = 4
"""Documents on which a verdict looks whether boundaries are such."""


@dataclass(frozen=True)
class Checked:
    """One line: what was checked, and what is wrong with it (None: nothing)."""

    what: str
    failure: str | None = None

    def __str__(self) -> str:
        return f"pass  {self.what}" if self.failure is None else f"FAIL  {self.what}: {self.failure}"


@dataclass(frozen=True, repr=False)
class ModelCheck(Frames):
    """What `check_model` found; print it to read it."""

    sites: tuple[Checked, ...]
    """By site, in the order they were named."""
    others: tuple[Checked, ...]
    """Whether the pass repeats itself; the head, the boundaries and the parts of blocks where they were named; and
    identities of the residual stream."""

    @property
    def passed(self) -> bool:
        return all(finding.failure is None for finding in (*self.sites, *self.others))

    def failures(self) -> dict[str, str]:
        return {f.what: f.failure for f in (*self.sites, *self.others) if f.failure is not None}

    def sentence(self) -> str:
        """One line for people."""
        failed = self.failures()
        outcome = f"{len(failed)} failed: {', '.join(failed)}" if failed else "all passed"
        return f"{counted(len(self.sites), 'site')} and {len(self.others)} other checks, {outcome}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per check."""
        return (asdict(finding) for finding in (*self.sites, *self.others))

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in (*self.sites, *self.others))


def check_model(model: Adapted, documents: Tensor | Batch) -> ModelCheck:
    """Pass or fail per site, on a few documents (tokens [n, t], or a batch of a task)."""
    if not isinstance(model, Adapted):
        raise UserError("check_model is for what `adapt` returns; our own models are tested before every grid")
    tokens = documents.tokens if isinstance(documents, Batch) else documents
    if not isinstance(tokens, Tensor) or tokens.is_floating_point():
        raise UserError("documents are a batch of a task, or a tensor of token numbers [documents, positions]")
    if tokens.dim() != 2 or tokens.shape[0] < 1 or tokens.shape[1] < 3:
        raise UserError(f"tokens must be [documents, at least 3 positions], not {list(tokens.shape)}")
    if tokens.shape[0] == tokens.shape[1]:
        tokens = tokens[1:]  # or documents that stand where positions should would have the right shape
    with evaluating(model), torch.inference_mode():
        checker = _Checker(model, tokens.to(device_of(model)))
        sites = tuple(checker.site(name) for name in model.places)
        others = (*checker.head(), *checker.residual(), *checker.boundaries(), *checker.parts())
        return ModelCheck(sites, (checker.repeats(), *others))


def demand_boundaries(model: Adapted, tokens: Tensor) -> None:
    """Refuses a map whose boundaries are none, as a verdict would read routes off them all the same."""
    with evaluating(model), torch.inference_mode():
        checker = _Checker(model, tokens[:FEW].to(device_of(model)))
        for site in model.boundaries():
            checker.site(site)
        for found in checker.boundaries():
            if found.failure is not None:
                raise UserError(f"{found.what} cannot be one: {found.failure} (`check_model` tests all of a map)")


class _Checker:
    def __init__(self, model: Adapted, tokens: Tensor) -> None:
        self.model, self.tokens = model, tokens
        self.subject = Foreign(model, tokens)
        self.plain, self.tester = self.subject.plain, Tester(self.subject)
        self.other = tokens.roll(1, 1)
        """Other documents of the same tokens."""

    def repeats(self) -> Checked:
        failure = None
        if bool(self.plain.isnan().any()):
            failure = "some logits are not a number"
        elif not torch.equal(self.model(self.tokens), self.plain):
            failure = "the logits differ, so there is chance in the forward pass (dropout that is always on?)"
        return Checked("the same documents a second time", failure)

    def site(self, name: str) -> Checked:
        _, complaint = self.tester.judged(name)
        return Checked(name, complaint)

    def head(self) -> Iterator[Checked]:
        """Running the head at one position must give what it gives there among all."""
        if self.model.head is None:
            return
        read = torch.full((len(self.tokens), 1), self.tokens.shape[1] - 1, device=self.tokens.device)
        what = f"head {self.model.head}"
        try:
            narrowed = self.model(self.tokens, read)
        except UserError as error:
            yield Checked(what, str(error))
            return
        yield Checked(what, self._difference(narrowed[:, 0], self.plain[:, -1]))

    def residual(self) -> Iterator[Checked]:
        """Every identity whose sites are all named and sound."""
        numbers = {place_of(name)[0] for name in self.subject.found}
        yield from self._identity("blocks.0.resid_pre", "embed")
        for i in sorted(numbers):
            block = f"blocks.{i}"
            yield from self._identity(f"{block}.resid_mid", f"{block}.resid_pre", f"{block}.mixer_out")
            yield from self._identity(f"{block}.resid_post", f"{block}.resid_mid", f"{block}.mlp_out")
            parts = [f"{block}.resid_pre", f"{block}.mixer_out"]
            if f"{block}.mlp_out" in self.model.places:
                parts.append(f"{block}.mlp_out")
            yield from self._identity(f"{block}.resid_post", *parts)
            yield from self._identity(f"blocks.{i + 1}.resid_pre", f"{block}.resid_post")

    def _identity(self, whole: str, *parts: str) -> Iterator[Checked]:
        if all(name in self.subject.found for name in (whole, *parts)):
            values = [self.subject.found[part] for part in parts]
            odd = [x for x in values if x.shape != self.subject.found[whole].shape]
            total = odd[0] if odd else torch.stack([x.double() for x in values]).sum(0)
            yield Checked(f"{whole} = {' + '.join(parts)}", self._difference(total, self.subject.found[whole]))

    def boundaries(self) -> Iterator[Checked]:
        """Where the stream of other documents is written, their logits must come out and later boundaries follow."""
        names, found = self.model.boundaries(), self.subject.found
        if not {*names} <= {*found}:
            return  # the site that is not sound is told already
        for i, name in enumerate(names):
            later = names[i + 1 :]
            with record(self.model, later) as seen, edit(self.model, {name: lambda _, new=found[name]: new}):
                logits = self.model(self.other)
            astray = [site for site in later if self._difference(seen[site], found[site]) is not None]
            failure = None
            if self._difference(logits, self.plain) is not None:
                failure = "the logits depend on something that does not pass through it"
            elif astray:
                failure = f"{astray[0]} is named after it and does not depend on it alone"
            elif i == 0 and self._difference(*self._first(name)) is not None:
                failure = "tokens of other positions have reached it: it is not what enters the first block"
            elif not later and self._difference(*self._last(name)) is not None:
                failure = "what is written there still reaches other positions: it is not what leaves the last block"
            yield Checked(f"boundary {name}", failure)

    def _first(self, name: str) -> tuple[Tensor, Tensor]:
        """What stands at the other positions when the token of one is changed, and when it is not."""
        at = self.tokens.shape[1] // 2
        tokens = self.tokens.clone()
        tokens[:, at] = self.other[:, at]
        with record(self.model, [name]) as seen:
            self.model(tokens)
        kept = torch.arange(tokens.shape[1], device=tokens.device) != at
        return seen[name][:, kept], self.subject.found[name][:, kept]

    def _last(self, name: str) -> tuple[Tensor, Tensor]:
        """The logits of the other positions with noise at one, and without."""
        at = self.subject.positions(name)
        logits, _ = self.subject.written(name, at, self._disturbed(name, at))
        return swap(logits, at, pick(self.plain, at)), self.plain

    def parts(self) -> Iterator[Checked]:
        """While the parts of a block are held as they were, noise must stay at its position."""
        names, found = self.model.boundaries(), self.subject.found
        for i, parts in enumerate(self.model.parts()):
            start, end, sites = names[i], names[i + 1], [part.site for part in parts]
            if end in sites or not {start, end, *sites} <= {*found}:
                continue
            at = self.subject.positions(start)
            noise = self._disturbed(start, at)
            held = {site: lambda _, new=found[site]: new for site in sites}
            with (
                record(self.model, [end]) as seen,
                edit(self.model, {**held, start: lambda x, new=noise, at=at: swap(x, at, new)}),
            ):
                self.model(self.tokens)
            gap = self._difference(swap(seen[end], at, pick(found[end], at)), found[end])
            failure = None if gap is None else "information moves between positions beside them"
            yield Checked(f"parts of block {i}: {', '.join(part.component for part in parts)}", failure)

    def _disturbed(self, site: str, at: Tensor) -> Tensor:
        activation = self.subject.found[site]
        return pick(activation, at) + noise_for(activation, site, 1.0)

    def _difference(self, found: Tensor, expected: Tensor) -> str | None:
        if found.shape != expected.shape:
            return f"the shapes are {list(found.shape)} and {list(expected.shape)}"
        gap = relative_difference(found.double(), expected.double()).item()
        return None if gap <= self._tolerance(expected) else f"they differ by {gap:.2g} of the largest value"

    def _tolerance(self, *compared: Tensor) -> float:
        """That of the coarsest numbers computed with: logits of a model in half precision may come as single ones."""
        weights = {weight.dtype: weight for weight in self.model.parameters() if weight.dtype in TOLERANCE}
        return max(tolerance_for(x) for x in (self.plain, *compared, *weights.values()))

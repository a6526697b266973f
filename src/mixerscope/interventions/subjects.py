"""Models as the self-test sees them: what can be read there, what can be written, and what is compared afterwards."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mixerscope.errors import MixerscopeError, SiteFiredAgain, SiteNeverFired, UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.resume import Resumed, pick, run_and_record, split_site, swap
from mixerscope.interventions.states import is_state, mixer_of, run_from_states
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.sites import Tap, edit, record

RANDOM_STD = 0.3
"""Weights of the copy with random weights: large enough that every part of a model matters."""

TOGETHER = 14
"""Sites that are looked at in one pass, which with copies that are left alone has as many rows as one of the grid."""


class Look(NamedTuple):
    """What became of a model with a value written at one site, for each of s sites."""

    sites: Sequence[str]
    moved: Tensor
    """[s, n, t, ...] `Subject.plain` then."""
    plain: Tensor
    """[n, t, ...] what the same pass gives without a value."""
    errors: Tensor
    """[s] see `Subject.resume_error`."""


class Subject(Protocol):
    """A model and a few documents."""

    plain: Tensor
    """[n, t, ...] what is compared at every position, of the unedited run."""
    scales: tuple[float, ...]
    """How strong noise may be made until it shows, relative to the activation."""

    def complaint(self, site: str) -> str | None:
        """Why the site cannot be read at all, or None."""
        ...

    def activation(self, site: str) -> Tensor:
        """[n, t, ...] what the unedited run holds there."""
        ...

    def positions(self, site: str) -> Tensor:
        """[n] where the site is tested: there must be something before."""
        ...

    def written_back(self, sites: Iterable[str]) -> Tensor:
        """`plain` with what is there written back at all of these sites."""
        ...

    def written(self, site: str, positions: Tensor, value: Tensor | None) -> tuple[Tensor, Tensor]:
        """`plain`, and the logits, with value [n, ...] written at positions [n] in a whole forward pass.

        Without a value nothing is written, and a recurrence is still run step by step from there on.
        """
        ...

    def resume_error(self, site: str, positions: Tensor, value: Tensor, logits: Tensor) -> Tensor:
        """How far the grid's way of running this edit is from the logits of the whole forward pass."""
        ...

    def looks(self, values: Mapping[str, Tensor]) -> Iterator[Look]:
        """What each of these values [n, ...] does, written at its site alone and at `positions` of it."""
        ...

    def scrambled(self) -> "Subject | None":
        """The same with random weights, where a copy may be made."""
        ...

    def strict(self) -> "Subject | None":
        """The same in strict arithmetic, where this one is not."""
        ...


class Own:
    """A model of ours, or under vmap several at once."""

    scales = (1.0, 30.0, 1000.0)

    def __init__(self, model: Model, tokens: Tensor, read: Tensor, sites: Iterable[str]) -> None:
        self.model, self.tokens, self.read, self.sites = model, tokens, read[:, None], list(sites)
        self.end = f"blocks.{len(model.blocks) - 1}.resid_post"
        """Compared at every position in place of the logits, which say no more and cost many times as much."""
        self.runner, self.silent = Resumed(model), set[str]()
        try:
            self.unedited = self.runner.run(tokens, self.read, self.sites)
        except (SiteNeverFired, SiteFiredAgain):
            self.silent = {site for site in self.sites if not self._fires(site)}
            self.unedited = self.runner.run(tokens, self.read, [site for site in self.sites if site not in self.silent])
        self.plain = self.unedited.cache[self.end]

    def complaint(self, site: str) -> str | None:
        return "it never fires, or fires more than once" if site in self.silent else None

    def activation(self, site: str) -> Tensor:
        return self.unedited.cache[site]

    def positions(self, site: str) -> Tensor:
        """The position before the one that is read: there is something before it and something after it.

        In the last block little can reach a later position, so there it is the position that is read itself; but a
        state acts on what comes after its position only.
        """
        last = split_site(site)[0] == len(self.model.blocks) - 1
        read = self.read[:, 0]
        return read if last and not is_state(site) else read - 1

    def written_back(self, sites: Iterable[str]) -> Tensor:
        with edit(self.model, {site: write_back(self.positions(site)) for site in sites}):
            return self._run()[0]

    def written(self, site: str, positions: Tensor, value: Tensor | None) -> tuple[Tensor, Tensor]:
        if not is_state(site):
            with edit(self.model, {} if value is None else {site: lambda x, new=value: swap(x, positions, new)}):
                return self._run()
        block, inputs = f"blocks.{split_site(site)[0]}", list[Tensor]()

        def keep(x: Tensor) -> Tensor:
            inputs.append(x)
            return x

        def go_on(y: Tensor) -> Tensor:
            written = None if value is None else value[:, None]
            return run_from_states(mixer_of(self.model, site), inputs[0], y, positions[:, None], written)

        with edit(self.model, {f"{block}.mixer_in": keep, f"{block}.mixer_out": go_on}):
            return self._run()

    def resume_error(self, site: str, positions: Tensor, value: Tensor, logits: Tensor) -> Tensor:
        left = self.runner.leaves(self.unedited, site, positions[:, None], value[:, None])
        return relative_difference(self.runner.read_out(left), logits)

    def looks(self, values: Mapping[str, Tensor]) -> Iterator[Look]:
        """In one pass over copies of the documents: the first is left alone, each other has the value of one site.

        Small passes cost as much as they have operations, whatever their size. One more copy comes last: the last rows
        of a matrix product may be rounded otherwise, and that is no finding.
        """
        sites = list(values)
        for start in range(0, len(sites), TOGETHER):
            group = sites[start : start + TOGETHER]
            copies = (1 + len(group) + 1, len(self.tokens))
            taps = {site: self._in_copy(number, site, values[site]) for number, site in enumerate(group, 1)}
            with edit(self.model, taps):
                ends, logits = (x.unflatten(0, copies) for x in self._run(copies[0]))
            at = [self.positions(site)[:, None] for site in group]
            given = zip(group, at, [values[site][:, None] for site in group], strict=True)
            resumed = self.runner.read_out(torch.stack([self.runner.leaves(self.unedited, *one) for one in given]))
            yield Look(group, ends[1:-1], ends[0], relative_differences(resumed, logits[1:-1]))

    def _in_copy(self, number: int, site: str, value: Tensor) -> Tap:
        """Writes a value in one copy of the documents."""
        rows, positions = slice(number * len(self.tokens), (number + 1) * len(self.tokens)), self.positions(site)
        return lambda x: torch.cat([x[: rows.start], swap(x[rows], positions, value), x[rows.stop :]])

    def scrambled(self) -> "Own":
        model = copy.deepcopy(self.model)
        rng = stream(0, "self-test", "weights")
        for parameter in model.parameters():
            random = torch.randn(parameter.shape, generator=rng, dtype=torch.float64) * RANDOM_STD
            parameter.copy_(random)
        return Own(model, self.tokens, self.read[:, 0], self.sites)

    def strict(self) -> "Own | None":
        if self.plain.device.type == "cpu":
            return None
        return Own(copy.deepcopy(self.model).cpu(), self.tokens.cpu(), self.read[:, 0].cpu(), self.sites)

    def _run(self, copies: int = 1) -> tuple[Tensor, Tensor]:
        """What leaves the last block [n, t, d], and the logits [n, 1, v] at the position that is read."""
        tokens, read = (x.repeat(copies, 1) for x in (self.tokens, self.read))
        logits, found = run_and_record(self.model, tokens, read, [self.end])
        return found[self.end], logits

    def _fires(self, site: str) -> bool:
        try:
            run_and_record(self.model, self.tokens, self.read, [site])
        except (SiteNeverFired, SiteFiredAgain):
            return False
        return True


class Foreign:
    """A module that was adapted. Its weights are left alone, so that none are scrambled or sent elsewhere."""

    scales = (1.0,)

    def __init__(self, model: Adapted, tokens: Tensor) -> None:
        self.model, self.tokens = model, tokens
        self.plain = model(tokens)
        if self.plain.shape[:2] != tokens.shape:
            raise UserError(
                f"the logits have shape {list(self.plain.shape)}; they must be [documents, positions, symbols]"
            )
        self.found: dict[str, Tensor] = {}
        """What sites that can be read hold, as far as they were asked about."""

    def complaint(self, site: str) -> str | None:
        try:
            with record(self.model, [site]) as found:
                self.model(self.tokens)
        except SiteNeverFired:
            place = self.model.places[site]
            return f"it never fires: the forward pass does not call {place.path!r} (a fused path?)"
        except SiteFiredAgain:
            return "it fires more than once in a forward pass"
        except MixerscopeError as error:
            return str(error)
        if found[site].shape[:2] != self.tokens.shape:
            wanted = f"[{self.tokens.shape[0]} documents, {self.tokens.shape[1]} positions, ...]"
            return f"it holds {list(found[site].shape)}, not {wanted}"
        self.found[site] = found[site]
        return None

    def activation(self, site: str) -> Tensor:
        return self.found[site]

    def positions(self, site: str) -> Tensor:
        """Another one in every document, never the first."""
        count, length = self.tokens.shape
        return 1 + (length // 3 + torch.arange(count, device=self.tokens.device)) % (length - 1)

    def written_back(self, sites: Iterable[str]) -> Tensor:
        with edit(self.model, {site: write_back(self.positions(site)) for site in sites}):
            return self.model(self.tokens)

    def written(self, site: str, positions: Tensor, value: Tensor | None) -> tuple[Tensor, Tensor]:
        with edit(self.model, {} if value is None else {site: lambda x, new=value: swap(x, positions, new)}):
            logits = self.model(self.tokens)
        return logits, logits

    def resume_error(self, site: str, positions: Tensor, value: Tensor, logits: Tensor) -> Tensor:
        return logits.new_zeros(())  # the grid runs the whole pass, too

    def looks(self, values: Mapping[str, Tensor]) -> Iterator[Look]:
        """One by one: what a foreign module needs for a pass is not known."""
        for site, value in values.items():
            positions = self.positions(site)
            moved, logits = self.written(site, positions, value)
            yield Look([site], moved[None], self.plain, self.resume_error(site, positions, value, logits)[None])

    def scrambled(self) -> None:
        return None

    def strict(self) -> None:
        return None


def write_back(positions: Tensor) -> Tap:
    return lambda x: swap(x, positions, pick(x, positions))


def relative_difference(found: Tensor, expected: Tensor) -> Tensor:
    """The largest difference as a share of the largest expected value."""
    return relative_differences(found[None], expected[None])[0]


def relative_differences(found: Tensor, expected: Tensor) -> Tensor:
    """[s] the same of each, from [s, ...]."""
    largest = ((found - expected).flatten(1).abs().amax(1), expected.flatten(1).abs().amax(1))
    return largest[0] / largest[1].clamp(min=1e-12)

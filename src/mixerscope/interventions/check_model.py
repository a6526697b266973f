"""Whether an adapted model can be trusted, site by site: what precedes every grid on a foreign module.

Each site must fire exactly once, hold [documents, positions, ...], leave every logit as it is when its own activation
is written back, and move logits at its position or later and none before when noise is added. The residual stream must
add up where the sites that say so are named.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.errors import UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.cache import evaluating
from mixerscope.interventions.selftest import Tester
from mixerscope.interventions.subjects import Foreign
from mixerscope.tasks import Batch


@dataclass(frozen=True)
class Checked:
    """One line: what was checked, and what is wrong with it (None: nothing)."""

    what: str
    failure: str | None = None

    def __str__(self) -> str:
        return f"pass  {self.what}" if self.failure is None else f"FAIL  {self.what}: {self.failure}"


@dataclass(frozen=True)
class ModelCheck:
    """What `check_model` found; print it to read it."""

    sites: tuple[Checked, ...]
    """By site, in the order they were named."""
    others: tuple[Checked, ...]
    """Identities of the residual stream, and the head where one was named."""

    @property
    def passed(self) -> bool:
        return all(checked.failure is None for checked in (*self.sites, *self.others))

    def failures(self) -> dict[str, str]:
        return {f.what: f.failure for f in (*self.sites, *self.others) if f.failure is not None}

    def __str__(self) -> str:
        return "\n".join(str(checked) for checked in (*self.sites, *self.others))


def check_model(model: Adapted, documents: Tensor | Batch) -> ModelCheck:
    """Pass or fail per site, on a few documents (tokens [n, t], or a batch of a task)."""
    tokens = documents.tokens if isinstance(documents, Batch) else documents
    if tokens.dim() != 2 or tokens.shape[1] < 3:
        raise UserError(f"tokens must be [documents, at least 3 positions], not {list(tokens.shape)}")
    with evaluating(model), torch.inference_mode():
        checker = _Checker(model, tokens)
        sites = tuple(checker.site(name) for name in model.places)
        return ModelCheck(sites, (*checker.head(), *checker.residual()))


class _Checker:
    def __init__(self, model: Adapted, tokens: Tensor) -> None:
        self.model, self.tokens = model, tokens
        self.subject = Foreign(model, tokens)
        self.plain, self.tester = self.subject.plain, Tester(self.subject)
        self.tolerance = self.tester.tolerance

    def site(self, name: str) -> Checked:
        _, complaint = self.tester.judged(name)
        return Checked(name, complaint)

    def head(self) -> Iterator[Checked]:
        """Running the head at one position must give what it gives there among all."""
        if self.model.head is None:
            return
        read = torch.full((len(self.tokens), 1), self.tokens.shape[1] - 1, device=self.tokens.device)
        narrowed = self.model(self.tokens, read)
        what = f"head {self.model.head}"
        if narrowed.shape[:2] != read.shape:
            yield Checked(what, f"asked for one position, the logits have shape {list(narrowed.shape)}")
            return
        yield Checked(what, _difference(narrowed[:, 0], self.plain[:, -1], self.tolerance))

    def residual(self) -> Iterator[Checked]:
        """Every identity whose sites are all named and sound."""
        numbers = sorted({int(name.split(".")[1]) for name in self.subject.found if name.startswith("blocks.")})
        yield from self._identity("blocks.0.resid_pre", "embed")
        for i in numbers:
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
            total = torch.stack([self.subject.found[part] for part in parts]).sum(0)
            yield Checked(
                f"{whole} = {' + '.join(parts)}", _difference(total, self.subject.found[whole], self.tolerance)
            )


def _difference(found: Tensor, expected: Tensor, tolerance: float) -> str | None:
    if found.shape != expected.shape:
        return f"the shapes are {list(found.shape)} and {list(expected.shape)}"
    gap = ((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12)).item()
    return None if gap <= tolerance else f"they differ by {gap:.2g} of the largest value"

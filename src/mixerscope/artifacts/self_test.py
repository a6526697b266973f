"""What the checks before a grid found."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.showing import counted


@dataclass(frozen=True)
class SiteTest:
    """The checks of one site."""

    site: str
    fires: bool
    identity_exact: bool
    noise_moves_later: bool
    noise_moves_earlier: bool
    resume_error: float
    """Largest difference of logits, noise in place, between running on from the site and the whole forward pass,
    relative to the largest logit."""
    dead: bool = False
    """Noise reached the logits only in a copy with random weights: this model does not use the component."""

    def failure(self, tolerance: float) -> str | None:
        """What is wrong with the site, or None."""
        if not self.fires:
            return "it never fires, or fires more than once"
        if not self.identity_exact:
            return "writing back its own activation changes the logits"
        if not self.noise_moves_later:
            return "noise there changes no logit, so an edit is thrown away"
        if self.noise_moves_earlier:
            return "noise there changes logits of earlier positions, so the model is not causal"
        if not self.resume_error <= tolerance:
            return f"running on from it differs from the whole forward pass by {self.resume_error:.2g}"
        return None


@dataclass(frozen=True, repr=False)
class SelfTest(Frames, JsonArtifact):
    """The checks of all sites that a grid edits."""

    file: ClassVar[str] = "self_test.json"
    sites: tuple[SiteTest, ...]
    documents: int
    tolerance: float

    def sentence(self) -> str:
        """One line for people."""
        failed = [one.site for one in self.sites if one.failure(self.tolerance) is not None]
        dead = sum(one.dead for one in self.sites)
        said = f"{counted(len(self.sites), 'site')} on {counted(self.documents, 'document')}"
        outcome = f"failed: {', '.join(failed)}" if failed else "all passed"
        return f"{said}, {outcome}{f', {dead} unused' if dead else ''}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per site."""
        return ({**vars(site), "tolerance": self.tolerance, "n": self.documents} for site in self.sites)

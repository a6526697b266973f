"""The checks that run before every grid, so that a zero in it is a finding and not a hook that did nothing.

Per site: it fires exactly once in a forward pass; writing back what is there changes no bit of any logit; noise at a
position moves logits at that position or later and none before; and running on from the site (what the grid does)
gives what the whole forward pass gives.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from mixerscope.errors import SelfTestFailed, SiteFiredAgain, SiteNeverFired
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.resume import Resumption, pick, split_site, swap
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.sites import edit, record

DOCUMENTS = 4
"""Documents the self-test runs on."""
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
"""Largest difference between resumed and whole run, relative to the largest logit."""


@dataclass(frozen=True)
class SiteTest:
    site: str
    fires: bool
    identity_exact: bool
    noise_moves_later: bool
    noise_moves_earlier: bool
    resume_error: float
    """Largest difference of logits, noise in place, between running on from the site and the whole forward pass."""

    def failure(self, tolerance: float) -> str | None:
        if not self.fires:
            return "it never fires, or fires more than once"
        if not self.identity_exact:
            return "writing back its own activation changes the logits"
        if not self.noise_moves_later:
            return "noise there changes no logit: the edit is thrown away"
        if self.noise_moves_earlier:
            return "noise there changes logits of earlier positions: the model is not causal"
        if not self.resume_error <= tolerance:
            return f"running on from it differs from the whole forward pass by {self.resume_error:.2g}"
        return None


@dataclass(frozen=True)
class SelfTest:
    sites: tuple[SiteTest, ...]
    documents: int
    tolerance: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def self_test(model: Model, pairs: Pairs, sites: list[str]) -> SelfTest:
    """Runs all checks; raises `SelfTestFailed` naming the first site that fails."""
    batch = pairs.original[slice(0, DOCUMENTS)]
    read, _ = batch.answers()
    plain = model(batch.tokens)
    tolerance = TOLERANCE[plain.dtype]
    tests: list[SiteTest] = []
    for site in sites:
        test = _test_site(model, batch.tokens, read, site, plain)
        failure = test.failure(tolerance)
        if failure is not None:
            raise SelfTestFailed(f"site {site!r} cannot be trusted: {failure}")
        tests.append(test)
    return SelfTest(tuple(tests), len(batch), tolerance)


def _test_site(model: Model, tokens: Tensor, read: Tensor, site: str, plain: Tensor) -> SiteTest:
    try:
        with record(model, [site]) as found:
            model(tokens)
    except (SiteNeverFired, SiteFiredAgain):
        return SiteTest(site, False, False, False, False, float("inf"))
    activation = found[site]
    length = tokens.shape[1]
    rng = stream(0, "self-test", site)
    # The position before the one that is read: there is something before it and something after it. After the last
    # mixer nothing can reach a later position, so the noise goes to the position that is read itself.
    positions = read - 1
    if site_is_last(model, site):
        positions = read
    scale = activation.abs().mean() + 1.0
    noise = torch.randn(activation[:, 0].shape, generator=rng, dtype=activation.dtype).to(activation.device) * scale

    with edit(model, {site: lambda x: swap(x, positions, pick(x, positions))}):
        same = model(tokens)
    with edit(model, {site: lambda x: swap(x, positions, pick(x, positions) + noise)}):
        moved = model(tokens)
    changed = (moved != plain).any(-1)  # [n, t]
    earlier = torch.arange(length, device=tokens.device) < positions[:, None]

    resumption = Resumption(model, tokens, read)
    resumption.run([site])
    resumed = resumption.edited(site, positions, pick(resumption.cache[site], positions) + noise)
    error = (resumed - pick(moved, read)).abs().max() / plain.abs().max().clamp(min=1e-12)
    return SiteTest(
        site,
        fires=True,
        identity_exact=torch.equal(same, plain),
        noise_moves_later=bool((changed & ~earlier).any(1).all()),
        noise_moves_earlier=bool((changed & earlier).any()),
        resume_error=error.item(),
    )


def site_is_last(model: Model, site: str) -> bool:
    """Whether the site lies in the last block, where few sites can still reach a later position."""
    return split_site(site)[0] == len(model.blocks) - 1

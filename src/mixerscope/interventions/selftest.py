"""The checks that run before every grid, so that a zero in it is a finding and not a hook that did nothing.

Per site, the states of mixers included: it fires exactly once in a forward pass; writing back what is there changes no
bit of what the head reads; noise at a position moves what the head reads at that position or later and nothing before;
and running on from the site (what the grid does) gives the logits that the whole forward pass gives.

Noise may change nothing because the trained weights ignore the component (they are zero, or a softmax is saturated).
That is a finding. So the noise is repeated, stronger, and then on a copy with random weights: if the edit reaches the
logits there, the site works and is merely `dead` in this model.

One model, K stacked ones and foreign modules are tested alike. All sites get a first look, of all models at once. Those
that do not pass it are looked at closely, model by model: only there can a finding decide what is tried next.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from mixerscope.artifacts.self_test import SelfTest, SiteTest
from mixerscope.errors import SelfTestFailed
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.members import Members
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.resume import pick
from mixerscope.interventions.states import is_state
from mixerscope.interventions.subjects import Foreign, Own, Subject, relative_difference
from mixerscope.model import Model
from mixerscope.randomness import stream

DOCUMENTS = 4
"""Documents the self-test runs on."""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference between resumed and whole run, relative to the largest logit."""
TF32_TOLERANCE = 1e-2
"""The same for float32 on a GPU that rounds the factors of matrix products to 10 bits, 5e-4 each: the two runs multiply
in other orders and shapes, and what they round differently passes through two blocks. An edit that went astray differs
by a tenth and more."""


def self_test(model: Model | Adapted, pairs: Pairs, sites: Sequence[str]) -> SelfTest:
    """Runs all checks; raises `SelfTestFailed` naming the first site that fails."""
    [found] = self_tests(Members([model]), pairs, sites)
    if isinstance(found, SelfTestFailed):
        raise found
    return found


def self_tests(members: Members, pairs: Pairs, sites: Sequence[str]) -> list[SelfTest | SelfTestFailed]:
    """The checks of every model, or what it failed by."""
    pairs = next(pairs.chunks(DOCUMENTS))
    at_once = [site for site in sites if not is_state(site)]  # what steps do is compared with steps, not at once
    looks: Tensor = members.map(lambda model: Tester(subject_of(model, pairs, at_once)).first_looks(at_once))
    tolerance = tolerance_for(looks)
    found: list[SelfTest | SelfTestFailed] = []
    for model, seen in zip(members.models, looks.cpu().tolist(), strict=True):
        passed = {
            site: SiteTest(site, True, True, True, False, error)
            for site, (exact, later, not_earlier, error) in zip(at_once, seen, strict=True)
            if exact and later and not_earlier and error <= tolerance
        }
        left = [site for site in sites if site not in passed]
        try:
            if left:
                tester = Tester(subject_of(model, pairs, left))
                passed |= {site: tester.passed(site) for site in left}
            found.append(SelfTest(tuple(passed[site] for site in sites), len(pairs), tolerance))
        except SelfTestFailed as failure:
            found.append(failure)
    return found


def subject_of(model: Model | Adapted, pairs: Pairs, sites: Sequence[str]) -> Subject:
    tokens = pairs.original.tokens
    # Of several reads the last: what an edit does can be seen there.
    return Foreign(model, tokens) if isinstance(model, Adapted) else Own(model, tokens, pairs.reads.last, sites)


def tolerance_for(x: Tensor) -> float:
    """What rounding may explain in logits of this kind, where they are."""
    rounds_products = x.dtype == torch.float32 and x.is_cuda and torch.get_float32_matmul_precision() != "highest"
    return TF32_TOLERANCE if rounds_products else TOLERANCE[x.dtype]


class Tester:
    """The checks of one model, or under vmap, as far as `first_looks`, of several at once."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.plain = subject, subject.plain
        self.tolerance = tolerance_for(subject.plain)

    def first_looks(self, sites: Sequence[str]) -> Tensor:
        """[sites, 4]: identity exact, noise moves later, noise moves nothing earlier (1 or 0), and the resume error.

        Under vmap nothing can be decided; a site that does not pass at once is for `passed` to judge.
        """
        heard = [site for site in sites if self.subject.complaint(site) is None]
        # All are written back at once, which takes one pass; only if that changes something each answers for itself.
        exact = (self.subject.written_back(heard) == self.plain).all()
        scale, found = self.subject.scales[0], dict.fromkeys(sites, self.plain.new_zeros(4))
        for look in self.subject.looks({site: self._disturbed(site, scale) for site in heard}):
            positions = torch.stack([self.subject.positions(site) for site in look.sites])
            later, earlier = where_changed(look.moved, look.plain, positions)
            facts = [x.to(look.errors.dtype) for x in (exact.expand_as(later), later, ~earlier)]
            found |= dict(zip(look.sites, torch.stack([*facts, look.errors], 1).unbind(), strict=True))
        return torch.stack([*found.values()]) if sites else self.plain.new_zeros(0, 4)

    def passed(self, site: str) -> SiteTest:
        """The test of a site that can be trusted; raises `SelfTestFailed` for one that cannot."""
        test, complaint = self.judged(site)
        if complaint is not None and test.noise_moves_later and self._strict is not None:
            # Where sums are added up in varying order, or products are rounded, rounding alone can look like a fault.
            # The edit has reached the logits here; whether it is the right one is seen in strict arithmetic.
            return self._strict.passed(site)
        if complaint is not None and not bool(self.plain.isfinite().all()):
            complaint = "the model's own logits are not finite"
        if complaint is not None:
            raise SelfTestFailed(f"site {site!r} cannot be trusted: {complaint}")
        return test

    def judged(self, site: str) -> tuple[SiteTest, str | None]:
        """The test of a site, and what is wrong with it."""
        complaint = self.subject.complaint(site)
        if complaint is not None:
            return SiteTest(site, False, False, False, False, float("inf")), complaint
        test = self.test(site)
        return test, test.failure(self.tolerance)

    def test(self, site: str) -> SiteTest:
        """Of a site that can be read."""
        positions = self.subject.positions(site)
        plain, error = self.plain, 0.0
        if is_state(site):
            # Steps and the parallel form round differently: edits are compared with steps, these with the form.
            plain, _ = self.subject.written(site, positions, None)
            error = relative_difference(plain, self.plain).item()
            same, _ = self.subject.written(site, positions, pick(self.subject.activation(site), positions))
            identity = torch.equal(same, plain)
        else:
            identity = torch.equal(self.subject.written_back([site]), plain)
        later, earlier, dead = False, False, False
        for scale in self.subject.scales:
            later_now, earlier_now, error_now = self._disturb(site, scale, plain)
            later, earlier, error = bool(later_now), earlier or bool(earlier_now), max(error, error_now.item())
            if later:
                break
        else:
            if self._scrambled is not None:
                dead, moved = True, [self._scrambled.reach(site, scale) for scale in self.subject.scales]
                later, earlier = any(x for x, _ in moved), earlier or any(x for _, x in moved)
        return SiteTest(site, True, identity, later, earlier, error, dead)

    def reach(self, site: str, scale: float) -> tuple[bool, bool]:
        """Whether noise moves what comes at its position or later, and whether what comes before."""
        positions = self.subject.positions(site)
        plain, _ = self.subject.written(site, positions, None)
        moved, _ = self.subject.written(site, positions, self._disturbed(site, scale))
        later, earlier = where_changed(moved, plain, positions)
        return bool(later), bool(earlier)

    def _disturb(self, site: str, scale: float, plain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether noise moves what comes at its position or later, whether what comes before, and the resume error."""
        positions, disturbed = self.subject.positions(site), self._disturbed(site, scale)
        moved, logits = self.subject.written(site, positions, disturbed)
        return *where_changed(moved, plain, positions), self.subject.resume_error(site, positions, disturbed, logits)

    def _disturbed(self, site: str, scale: float) -> Tensor:
        activation = self.subject.activation(site)
        return pick(activation, self.subject.positions(site)) + noise_for(activation, site, scale)

    @cached_property
    def _strict(self) -> "Tester | None":
        strict = self.subject.strict()
        return None if strict is None else Tester(strict)

    @cached_property
    def _scrambled(self) -> "Tester | None":
        scrambled = self.subject.scrambled()
        return None if scrambled is None else Tester(scrambled)


def noise_for(activation: Tensor, site: str, scale: float) -> Tensor:
    """[n, ...] noise for one position of each document, of the activation's own size times `scale`."""
    rng = stream(0, "self-test", site)
    noise = torch.randn(activation[:, 0].shape, generator=rng, dtype=activation.dtype).to(activation.device)
    return noise * (activation.abs().mean() + 1.0) * scale


def where_changed(moved: Tensor, plain: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Whether anything changed at the edited positions [..., n] or later, and whether anything changed before: [...]
    each, from what moved [..., n, t, d] and what did not [n, t, d]."""
    changed = (moved != plain).any(-1)  # [..., n, t]
    earlier = torch.arange(changed.shape[-1], device=changed.device) < positions[..., None]
    return (changed & ~earlier).flatten(-2).any(-1), (changed & earlier).flatten(-2).any(-1)

"""The checks that run before every grid, so that a zero in it is a finding and not a hook that did nothing.

Per site, the states of mixers included: it fires exactly once in a forward pass; writing back what is there changes no
bit of what the head reads; noise at a position moves what the head reads at that position or later and nothing before;
and running on from the site (what the grid does) gives the logits that the whole forward pass gives.

Noise may change nothing because the trained weights ignore the component (they are zero, or a softmax is saturated).
That is a finding. So the noise is repeated, stronger, and then on a copy with random weights: if the edit reaches the
logits there, the site works and is merely `dead` in this model.
"""

import copy

import torch
from torch import Tensor

from mixerscope.artifacts.self_test import SelfTest, SiteTest
from mixerscope.errors import SelfTestFailed, SiteFiredAgain, SiteNeverFired
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.resume import Resumption, pick, run_and_record, split_site, swap
from mixerscope.interventions.states import is_state, mixer_of, run_from_states
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.sites import Tap, edit

DOCUMENTS = 4
"""Documents the self-test runs on."""
NOISE_SCALES = (1.0, 30.0, 1000.0)
RANDOM_STD = 0.3
"""Weights of the copy with random weights: large enough that every part of a model matters."""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference between resumed and whole run, relative to the largest logit."""
TF32_TOLERANCE = 1e-2
"""The same for float32 on a GPU that rounds the factors of matrix products to 10 bits, 5e-4 each: the two runs multiply
in other orders and shapes, and what they round differently passes through two blocks. An edit that went astray differs
by a tenth and more."""


def self_test(model: Model, pairs: Pairs, sites: list[str]) -> SelfTest:
    """Runs all checks; raises `SelfTestFailed` naming the first site that fails."""
    batch = pairs.original[slice(0, DOCUMENTS)]
    read, _ = batch.answers()
    tester = Tester(model, batch.tokens, read, sites)
    return SelfTest(tuple(tester.passed(site) for site in sites), len(batch), tester.tolerance)


def tolerance_for(x: Tensor) -> float:
    """What rounding may explain in logits of this kind, where they are."""
    rounds_products = x.dtype == torch.float32 and x.is_cuda and torch.get_float32_matmul_precision() != "highest"
    return TF32_TOLERANCE if rounds_products else TOLERANCE[x.dtype]


class Tester:
    """The checks of one model, or under vmap, as far as `first_look`, of several at once."""

    def __init__(self, model: Model, tokens: Tensor, read: Tensor, sites: list[str]) -> None:
        self.model, self.tokens, self.read, self.sites = model, tokens, read, sites
        self.end = f"blocks.{len(model.blocks) - 1}.resid_post"
        """Compared at every position in place of the logits, which say no more and cost many times as much."""
        self.unedited = Resumption(model, tokens, read)
        self.silent: set[str] = set()
        try:
            self.unedited.run(sites)
        except (SiteNeverFired, SiteFiredAgain):
            self.silent = {site for site in sites if not self._fires(site)}
            self.unedited.run([site for site in sites if site not in self.silent])
        self.plain = self._run(model)[0]
        self.tolerance = tolerance_for(self.plain)
        heard = [site for site in sites if site not in self.silent and not is_state(site)]
        # All at once, which takes one pass; only if that changes something does each site answer for itself.
        self.all_exact = self._identity_exact(heard)
        self._scrambled: Model | None = None
        self._on_cpu: Tester | None = None

    def first_look(self, site: str) -> Tensor:
        """[4]: identity exact, noise moves later, noise moves nothing earlier (1 or 0), and the resume error.

        Under vmap nothing can be decided; a site that does not pass at once is for `passed` to judge.
        """
        if site in self.silent or is_state(site):
            return torch.zeros(4, dtype=self.plain.dtype, device=self.plain.device)
        later, earlier, error = self._disturb(site, 1.0, self.plain)
        return torch.stack([*(x.to(error.dtype) for x in (self.all_exact, later, ~earlier)), error])

    def passed(self, site: str) -> SiteTest:
        """The test of a site that can be trusted; raises `SelfTestFailed` for one that cannot."""
        test = self.test(site)
        failure = test.failure(self.tolerance)
        if failure is not None and self.plain.device.type != "cpu" and test.noise_moves_later:
            # Where sums are added up in varying order, or products are rounded, rounding alone can look like a fault.
            # The edit has reached the logits here; whether it is the right one is seen in strict arithmetic.
            return self._strict().passed(site)
        if failure is not None:
            raise SelfTestFailed(f"site {site!r} cannot be trusted: {failure}")
        return test

    def _strict(self) -> "Tester":
        if self._on_cpu is None:
            model = copy.deepcopy(self.model).cpu()
            self._on_cpu = Tester(model, self.tokens.cpu(), self.read.cpu(), self.sites)
        return self._on_cpu

    def test(self, site: str) -> SiteTest:
        if site in self.silent:
            return SiteTest(site, False, False, False, False, float("inf"))
        positions, activation = self._positions(site), self.unedited.cache[site]
        plain, error = self.plain, 0.0
        if is_state(site):
            # Steps and the parallel form round differently: edits are compared with steps, these with the form.
            plain, _ = self._written(self.model, site, positions, None)
            error = _relative_difference(plain, self.plain).item()
            same, _ = self._written(self.model, site, positions, pick(activation, positions))
            identity = torch.equal(same, plain)
        else:
            identity = bool(self.all_exact) or bool(self._identity_exact([site]))
        later, earlier, dead = False, False, False
        for scale in NOISE_SCALES:
            later_now, earlier_now, error_now = self._disturb(site, scale, plain)
            later, earlier, error = bool(later_now), earlier or bool(earlier_now), max(error, error_now.item())
            if later:
                break
        else:
            dead = True
            model = self._scrambled_model()
            plain, _ = self._written(model, site, positions, None)
            _, found = run_and_record(model, self.tokens, self.read, [site])
            for scale in NOISE_SCALES:
                disturbed = pick(found[site], positions) + noise_for(found[site], site, scale)
                moved, _ = self._written(model, site, positions, disturbed)
                later_now, earlier_now = moves(moved, plain, positions)
                later, earlier = later or bool(later_now), earlier or bool(earlier_now)
        return SiteTest(site, True, identity, later, earlier, error, dead)

    def _disturb(self, site: str, scale: float, plain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether noise moves what comes at its position or later, whether what comes before, and the resume error."""
        positions, activation = self._positions(site), self.unedited.cache[site]
        disturbed = pick(activation, positions) + noise_for(activation, site, scale)
        moved, logits = self._written(self.model, site, positions, disturbed)
        resumed = self.unedited.edited(site, positions[:, None], disturbed[:, None])
        return *moves(moved, plain, positions), _relative_difference(resumed, logits)

    def _run(self, model: Model) -> tuple[Tensor, Tensor]:
        """What leaves the last block [n, t, d], and the logits [n, v] at the position that is read."""
        logits, found = run_and_record(model, self.tokens, self.read, [self.end])
        return found[self.end], logits

    def _fires(self, site: str) -> bool:
        try:
            run_and_record(self.model, self.tokens, self.read, [site])
        except (SiteNeverFired, SiteFiredAgain):
            return False
        return True

    def _positions(self, site: str) -> Tensor:
        """The position before the one that is read: there is something before it and something after it.

        In the last block little can reach a later position, so there it is the position that is read itself; but a
        state acts on what comes after its position only.
        """
        last = split_site(site)[0] == len(self.model.blocks) - 1
        return self.read if last and not is_state(site) else self.read - 1

    def _identity_exact(self, sites: list[str]) -> Tensor:
        def write_back(positions: Tensor) -> Tap:
            return lambda x: swap(x, positions, pick(x, positions))

        with edit(self.model, {site: write_back(self._positions(site)) for site in sites}):
            return (self._run(self.model)[0] == self.plain).all()

    def _written(self, model: Model, site: str, positions: Tensor, value: Tensor | None) -> tuple[Tensor, Tensor]:
        """`_run` with value [n, ...] written at positions [n], in a whole forward pass: the slow, obvious way.

        Without a value nothing is written, and a recurrence is still run step by step from there on.
        """
        if not is_state(site):
            with edit(model, {} if value is None else {site: lambda x, new=value: swap(x, positions, new)}):
                return self._run(model)
        block, inputs = f"blocks.{split_site(site)[0]}", list[Tensor]()

        def keep(x: Tensor) -> Tensor:
            inputs.append(x)
            return x

        def go_on(y: Tensor) -> Tensor:
            written = None if value is None else value[:, None]
            return run_from_states(mixer_of(model, site), inputs[0], y, positions[:, None], written)

        with edit(model, {f"{block}.mixer_in": keep, f"{block}.mixer_out": go_on}):
            return self._run(model)

    def _scrambled_model(self) -> Model:
        if self._scrambled is None:
            model = copy.deepcopy(self.model)
            rng = stream(0, "self-test", "weights")
            for parameter in model.parameters():
                random = torch.randn(parameter.shape, generator=rng, dtype=torch.float64) * RANDOM_STD
                parameter.copy_(random)
            self._scrambled = model
        return self._scrambled


def _relative_difference(found: Tensor, expected: Tensor) -> Tensor:
    """The largest difference as a share of the largest expected value."""
    return (found - expected).abs().max() / expected.abs().max().clamp(min=1e-12)


def noise_for(activation: Tensor, site: str, scale: float) -> Tensor:
    """[n, ...] noise for one position of each document, of the activation's own size times `scale`."""
    rng = stream(0, "self-test", site)
    noise = torch.randn(activation[:, 0].shape, generator=rng, dtype=activation.dtype).to(activation.device)
    return noise * (activation.abs().mean() + 1.0) * scale


def moves(moved: Tensor, plain: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Whether anything changed at the edited positions or later, and whether anything changed before."""
    changed = (moved != plain).any(-1)  # [n, t]
    earlier = torch.arange(changed.shape[1], device=changed.device) < positions[:, None]
    return (changed & ~earlier).any(), (changed & earlier).any()

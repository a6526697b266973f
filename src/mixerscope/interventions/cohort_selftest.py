"""The self-test of K models of one shape at once."""

from collections.abc import Sequence

from torch import Tensor, stack

from mixerscope.artifacts.self_test import SelfTest, SiteTest
from mixerscope.errors import SelfTestFailed
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.selftest import DOCUMENTS, Tester
from mixerscope.interventions.stacked import Stacked
from mixerscope.model import Model


def self_tests(models: Sequence[Model], pairs: Pairs, sites: list[str]) -> list[SelfTest | SelfTestFailed]:
    """`self_test` of every model, or its error. A site that does not pass at the first look is tested alone."""
    batch = pairs.original[slice(0, DOCUMENTS)]
    read, _ = batch.answers()
    tolerance = 0.0

    def program(model: Model, _: list[Tensor]) -> Tensor:
        nonlocal tolerance
        tester = Tester(model, batch.tokens, read, sites)
        tolerance = tester.tolerance
        return stack([tester.first_look(site) for site in sites])

    looks: list[list[list[float]]] = Stacked(models).map(program).cpu().tolist()
    found: list[SelfTest | SelfTestFailed] = []
    for model, seen in zip(models, looks, strict=True):
        alone: Tester | None = None
        tests: list[SiteTest] = []
        try:
            for site, (exact, later, not_earlier, error) in zip(sites, seen, strict=True):
                if exact and later and not_earlier and error <= tolerance:
                    tests.append(SiteTest(site, True, True, True, False, error))
                    continue
                alone = alone or Tester(model, batch.tokens, read, sites)
                tests.append(alone.passed(site))
            found.append(SelfTest(tuple(tests), len(batch), tolerance))
        except SelfTestFailed as failure:
            found.append(failure)
    return found

"""How many false names to expect of many verdicts.

A name is false if no more than `names` of all documents take its route, 0.9 unless the rules say otherwise. It is given
only if the interval of that share lies above `names`, so chance gives one to such a route as often as n documents
happen to hold so many that take it. Every other test can only take names away, and no second route can be that common,
so this bounds the rate whatever else was looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch

from mixerscope.analysis.intervals import wilson
from mixerscope.analysis.proofs import TAKES
from mixerscope.analysis.quantiles import at_least
from mixerscope.analysis.rules import NO_NAME, UNPROVEN
from mixerscope.artifacts.verdicts import Test, Verdict
from mixerscope.showing import Shown


@dataclass(frozen=True, repr=False)
class FalseNames(Shown):
    """What chance may have put among the names of some verdicts."""

    verdicts: int
    named: int
    """Of these: those that name a route."""
    expected: float
    """False names to expect at most, were none of the routes taken by more documents than a false one is."""
    rate: float
    """The largest chance that any one of these verdicts had of a false name."""
    needed: tuple[float, ...]
    """The shares of documents up to which a name is false: one, unless verdicts were reached by several rules."""
    untested: int = 0
    """Names that rest on no test of the route, which models of one block may not allow."""

    @property
    def at_most(self) -> str:
        """What is expected, as people read it."""
        return f"{self.expected:.1f}" if self.expected >= 0.1 else f"{self.expected:.2g}"

    def sentence(self) -> str:
        """One line for people."""
        verdicts = f"{self.verdicts} verdict{'' if self.verdicts == 1 else 's'}"
        if not self.named:
            return f"none of {verdicts} names a route"
        said = f"{self.named} of {verdicts} name{'s' if self.named == 1 else ''} a route"
        if self.needed:
            shares = " or ".join(f"{share:.0%}" for share in self.needed)
            said += (
                f"; at most {self.at_most} false names are to be expected (a route that {shares} of the"
                f" documents or fewer take is named in at most {self.rate:.1%} of verdicts)"
            )
        if self.untested:
            said += f"; {self.untested} of the names rest on no test of the route"
        return said


def false_names(verdicts: Iterable[Verdict]) -> FalseNames:
    """A bound on the false names among verdicts, those of a sweep say: from the documents of each, by the rules that
    judged it."""
    verdicts = list(verdicts)
    asked = [test for verdict in verdicts if (test := _taken(verdict)) is not None]
    rates = [false_naming_rate(test.value.n, test.needed) for test in asked if test.value and test.needed]
    named = [verdict for verdict in verdicts if verdict.route and verdict.mechanism.split(":")[0] not in NO_NAME]
    return FalseNames(
        verdicts=len(verdicts),
        named=len(named),
        expected=sum(rates),
        rate=max(rates, default=0.0),
        needed=tuple(sorted({test.needed for test in asked if test.needed})),
        untested=sum(_taken(verdict) is None for verdict in named),
    )


@cache
def false_naming_rate(documents: int, names: float) -> float:
    """The chance that a route which a share `names` of all documents takes gets a name, from so many of them."""
    counts = torch.arange(documents + 1, dtype=torch.float64)
    low, _ = wilson(counts / documents, torch.full_like(counts, documents))
    enough = (low > names).nonzero().flatten().tolist()
    return at_least(enough[0], documents, names) if enough else 0.0


def _taken(verdict: Verdict) -> Test | None:
    """The test of the share of documents, where the route was put to the proof."""
    if verdict.mechanism.split(":")[0] == UNPROVEN:
        return None
    return next((test for test in verdict.tests if test.name == TAKES and test.value and test.needed), None)

"""The published reading of a grid: the role with the largest restoration at each boundary, and no test of it."""

from itertools import pairwise

from mixerscope.analysis.rules import Rules, mechanism_of
from mixerscope.analysis.stats import mean_estimate
from mixerscope.artifacts.effects import ORIGINAL, SHARE, Cell, EffectTable, corrupted

TOO_SMALL = "gap too small"


def published_reading(table: EffectTable, slot: str, rules: Rules) -> str:
    """What the route of the largest shares is called."""
    route = published_route(table, slot, rules)
    return mechanism_of(route, slot, table.facts.mechanisms) if route else TOO_SMALL


def published_route(table: EffectTable, slot: str, rules: Rules) -> tuple[str, ...]:
    """The role with the largest share at each boundary; none if corrupting the slot lowers the mean likelihood too
    little."""
    gap = mean_estimate(table.likelihood(ORIGINAL) - table.likelihood(corrupted(slot)))
    if not gap.value > rules.min_gap:
        return ()
    carriers: list[str] = []
    for site in table.facts.boundaries:
        cells = [Cell(slot, "restore", site, role) for role in table.facts.roles]
        shares = {c.role: e.value for c in cells if c in table.index and (e := table.estimate(c, SHARE)) is not None}
        if not shares and any(cell in table.index for cell in cells):
            return ()  # of a gap that may be zero nothing has a share
        if not shares:
            # Where only one place can matter, a slot outside the grid was not patched.
            shares = {slot if site == table.facts.boundaries[0] else table.facts.read[0]: 1.0}
        carriers.append(max(shares, key=shares.__getitem__))
    return (*carriers[:1], *(after for before, after in pairwise(carriers) if before != after))

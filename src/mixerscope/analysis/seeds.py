"""What several seeds say together. A seed is one model: its documents are no further evidence about other seeds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mixerscope.analysis.stats import seeds_estimate
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.verdicts import Verdict

MIN_SEEDS = 3
"""Fewer have no interval: with two, Student's t is 12.7 standard errors wide."""
SINGLE_SEED = "single seed"
VARIES = "varies by seed"


@dataclass(frozen=True)
class OverSeeds:
    """The verdicts, or shares, of models that differ in their seed alone."""

    seeds: int
    mechanism: str | None
    """The one all seeds have, or 'varies by seed'; None where only shares were given."""
    mechanisms: Mapping[str, int]
    """How many seeds have each."""
    value: float | None
    """Mean share; None where the seeds differ in mechanism or none has a share."""
    share: Estimate | None
    """The same with its interval over seeds; None under three seeds."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def over_seeds(found: Sequence[Verdict] | Sequence[float]) -> OverSeeds:
    """One summary of several seeds: Student's t over the seeds' shares, each seed counting once."""
    verdicts = [item for item in found if isinstance(item, Verdict)]
    shares = [item for item in found if not isinstance(item, Verdict)]
    if not found or (verdicts and shares):
        raise ValueError("over_seeds takes verdicts or shares, at least one, and not both")
    mechanisms = dict(Counter(verdict.mechanism for verdict in verdicts))
    if verdicts and len(mechanisms) == 1:
        shares = [verdict.share.value for verdict in verdicts if verdict.share is not None]
    mechanism = None if not verdicts else VARIES if len(mechanisms) > 1 else verdicts[0].mechanism
    value = sum(shares) / len(shares) if shares else None
    if len(found) < MIN_SEEDS:
        return OverSeeds(len(found), mechanism, mechanisms, value, None, SINGLE_SEED)
    if not shares:
        counts = ", ".join(f"{name} in {count}" for name, count in mechanisms.items())
        return OverSeeds(len(found), mechanism, mechanisms, None, None, f"of {len(found)} seeds: {counts}")
    return OverSeeds(len(found), mechanism, mechanisms, value, seeds_estimate(shares))

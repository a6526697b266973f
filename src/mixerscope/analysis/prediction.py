"""How well a number that is known early tells which models do well later: areas under ROC curves, with intervals over
cohorts, whose members are more alike than models of different ones."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from mixerscope.analysis.quantiles import normal_quantile, t_quantile
from mixerscope.randomness import stream

DRAWS = 2000
"""Of cohorts, or of seeds, with replacement."""
LEVEL = 0.95
Key = TypeVar("Key")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Area:
    """Area under the ROC curve: how often, of two models that differ in what came of them, the better one has the
    higher score; ties count half."""

    value: float
    low: float | None
    """95% of resampled cohorts; None where too few of these have models to compare."""
    high: float | None
    pairs: int
    """Of models that were compared."""


def area(
    scores: Sequence[float], good: Sequence[bool], cohorts: Sequence[str], within: Sequence[str] | None = None
) -> Area | None:
    """The area, over all pairs, or over those alone that share their `within`; None where no two can be compared."""
    score = torch.tensor(list(scores), dtype=torch.float64)
    better = torch.tensor(list(good), dtype=torch.bool)
    compared = better[:, None] & ~better[None]
    if within is not None:
        group = _numbered(within)
        compared &= group[:, None] == group[None]
    if not bool(compared.any()):
        return None
    wins = ((score[:, None] > score[None]).double() + 0.5 * (score[:, None] == score[None])) * compared
    own = torch.nn.functional.one_hot(_numbered(cohorts)).double()  # [n, c]
    # By pairs of cohorts: resampling cohorts is weighing these. One that is drawn twice is two, each with its pairs.
    won, asked = own.T @ wins @ own, own.T @ compared.double() @ own
    drawn = _times_drawn(own.shape[1])
    values = _weighed(won, drawn) / _weighed(asked, drawn)
    low, high = _ends(values[values.isfinite()])
    return Area((wins.sum() / compared.sum()).item(), low, high, int(compared.sum()))


def _weighed(pairs: Tensor, drawn: Tensor) -> Tensor:
    """[b] sums over pairs of cohorts [c, c], by how often each is drawn [b, c]."""
    own = pairs.diagonal()
    return torch.einsum("bi,ij,bj->b", drawn, pairs - own.diag(), drawn) + drawn @ own


def _numbered(names: Sequence[str]) -> Tensor:
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([known[name] for name in names])


def _times_drawn(count: int) -> Tensor:
    """[b, c] how often each of `count` is drawn."""
    drawn = torch.randint(count, (DRAWS, count), generator=stream(0, "cohorts"))
    return torch.nn.functional.one_hot(drawn, count).sum(1).double()


def _ends(values: Tensor, draws: int = DRAWS) -> tuple[float | None, float | None]:
    if len(values) < draws / 2:
        return None, None
    tail = (1 - LEVEL) / 2
    low, high = torch.quantile(values, torch.tensor([tail, 1 - tail], dtype=values.dtype)).tolist()
    return low, high


def left_out_means(values: Sequence[float], groups: Sequence[str], cohorts: Sequence[str]) -> list[float]:
    """For each model the mean over those of its group that are in other cohorts; over all others where none are. What
    a group alone foretells, without having seen the cohort."""
    found: list[float] = []
    for group, cohort in zip(groups, cohorts, strict=True):
        others = [value for value, own in zip(values, cohorts, strict=True) if own != cohort]
        alike = [
            value for value, its, own in zip(values, groups, cohorts, strict=True) if its == group and own != cohort
        ]
        chosen = alike or others
        found.append(sum(chosen) / len(chosen) if chosen else 0.5)
    return found


def left_out_sums(values: Sequence[float], factors: Sequence[Sequence[str]], cohorts: Sequence[str]) -> list[float]:
    """For each model the sum of what each of its factors adds, least squares over the other cohorts; what was never
    seen there adds nothing. What several groupings foretell together, without having seen the cohort."""
    if not values:
        return []
    columns = [torch.nn.functional.one_hot(_numbered(names)).double() for names in factors]
    known = torch.cat([torch.ones(len(values), 1, dtype=torch.float64), *columns], 1)
    wanted, number = torch.tensor(list(values), dtype=torch.float64), _numbered(cohorts)
    found = torch.full_like(wanted, 0.5)
    for cohort in number.unique():
        own = number == cohort
        if bool((~own).any()):
            found[own] = known[own] @ (torch.linalg.pinv(known[~own]) @ wanted[~own])
    # Models of one cell are alike in all factors: rounding must not order them.
    return [round(value, 9) for value in found.tolist()]


def resampled(
    groups: Mapping[Key, Sequence[Item]],
    statistic: Callable[[Mapping[Key, Sequence[Item]]], float | None],
    draws: int = DRAWS,
) -> tuple[float | None, float | None]:
    """Ends of 95% of what a statistic gives when each group is drawn again from its own items; None where there is a
    group with one item, or none: a seed does not tell how seeds differ.

    Few items drawn again vary less than new ones would, and how much they vary is itself known badly: the ends of what
    was drawn hold the truth of five seeds in 81 cases of 100. So they are stretched from the middle by what Student's t
    and the lost degree of freedom ask for: 1.58 times for one group of five, 1.14 times for fifteen.
    """
    if any(len(items) < 2 for items in groups.values()):
        return None, None
    whole = statistic(groups)
    values = [value for again in _drawn_again(groups, draws) if (value := statistic(again)) is not None]
    low, high = _ends(torch.tensor(values, dtype=torch.float64), draws)
    if whole is None or low is None or high is None:
        return None, None
    count, degrees = (sum(len(items) - less for items in groups.values()) for less in (0, 1))
    stretch = t_quantile(degrees) / normal_quantile() * math.sqrt(count / degrees)
    return whole + stretch * min(0.0, low - whole), whole + stretch * max(0.0, high - whole)


def share_of_draws(
    groups: Mapping[Key, Sequence[Item]], holds: Callable[[Mapping[Key, Sequence[Item]]], bool], draws: int = DRAWS
) -> float:
    """In which share of draws of each group from its own items something holds of them."""
    return sum(map(holds, _drawn_again(groups, draws))) / draws


def _drawn_again(groups: Mapping[Key, Sequence[Item]], draws: int) -> Iterator[dict[Key, list[Item]]]:
    rng = stream(0, "seeds")
    drawn = {
        key: torch.randint(len(items), (draws, len(items)), generator=rng).tolist() for key, items in groups.items()
    }
    for n in range(draws):
        yield {key: [items[i] for i in drawn[key][n]] for key, items in groups.items()}

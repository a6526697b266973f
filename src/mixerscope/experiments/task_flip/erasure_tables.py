"""What is kept of erasures: in the stream and in states, at every position and at one, found again in longer documents;
and of ablated components."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import polars as pl

from mixerscope.artifacts import Erasures, Probes
from mixerscope.results import RunResult

Row = dict[str, Any]
_NUMBER = pl.Float32
SCHEMAS: dict[str, dict[str, Any]] = {
    "erasures": {
        **dict.fromkeys(("run_id", "site", "method"), pl.String),
        **dict.fromkeys(("boundary", "rank"), pl.Int32),
        **dict.fromkeys(("variance", "before", "residual"), _NUMBER),
        "speaks": pl.Boolean,
        "length": pl.Int32,
        **dict.fromkeys(("accuracy", "damage", "random_rank", "random_variance", "percentile"), _NUMBER),
        **dict.fromkeys(("clean", "guessing", "chance", "unseen"), _NUMBER),
    },
    "erased_once": {
        **dict.fromkeys(("run_id", "site", "method"), pl.String),
        **dict.fromkeys(("boundary", "position", "rank"), pl.Int32),
        **dict.fromkeys(("chance", "before", "residual"), _NUMBER),
        "speaks": pl.Boolean,
        **dict.fromkeys(("now", "later", "damage_now", "damage_later", "random_now", "random_later"), _NUMBER),
        "unseen": _NUMBER,
    },
    "refitted": {
        **dict.fromkeys(("run_id", "site", "method"), pl.String),
        **dict.fromkeys(("boundary", "length", "rank"), pl.Int32),
        **dict.fromkeys(("chance", "before", "residual", "kept_residual"), _NUMBER),
        "speaks": pl.Boolean,
        **dict.fromkeys(("accuracy", "damage", "alike", "unseen"), _NUMBER),
    },
    "ablations": {
        **dict.fromkeys(("run_id", "site", "edit"), pl.String),
        **dict.fromkeys(("accuracy", "damage", "turned", "percentile"), _NUMBER),
    },
}


def _erasures(result: RunResult) -> Iterator[Row]:
    found = result.find(Erasures)
    place = boundaries(result)
    for one in found.erased if found else ():
        assert found is not None
        for at, length in enumerate(found.lengths):
            longer = one.random_longer[at - 1] if at and one.random_longer else ()
            drawn = longer if at else one.random_variance
            yield {
                "run_id": result.run_id,
                "site": one.site,
                "method": one.method,
                "boundary": place.get(one.site),
                "rank": one.rank,
                "variance": one.variance,
                "before": one.before,
                "residual": one.residual,
                "speaks": found.speaks(one),
                "length": length,
                "accuracy": one.accuracy[at],
                "damage": one.damage[at],
                "random_rank": _mean(one.random_rank) if at == 0 else None,
                "random_variance": _mean(drawn),
                "percentile": _mean([value > one.accuracy[at] for value in drawn]),
                "clean": found.clean[at],
                "guessing": found.guessing[at],
                "chance": found.chance,
                "unseen": one.unseen,
            }


def _once(result: RunResult) -> Iterator[Row]:
    found = result.find(Erasures)
    place = boundaries(result)
    for one in found.once if found else ():
        assert found is not None
        drawn = {"random_now": _mean(one.random_now), "random_later": _mean(one.random_later)}
        where = {"run_id": result.run_id, "boundary": place.get(one.site), "position": found.position}
        yield {**where, **vars(one), "speaks": found.speaks(one), **drawn}


def _refitted(result: RunResult) -> Iterator[Row]:
    found = result.find(Erasures)
    place = boundaries(result)
    for one in found.refitted if found else ():
        assert found is not None
        said = {name: value for name, value in vars(one).items() if name != "cosines"}
        alike = _mean([value**2 for value in one.cosines])
        where = {"run_id": result.run_id, "boundary": place.get(one.site)}
        yield {**where, **said, "speaks": found.speaks(one), "alike": alike}


def _ablations(result: RunResult) -> Iterator[Row]:
    found = result.find(Erasures)
    for one in found.ablated if found else ():
        yield {"run_id": result.run_id, **vars(one), "turned": _mean(one.turned), "percentile": one.percentile}


def boundaries(result: RunResult) -> dict[str, int]:
    """Site to its number, of those between blocks."""
    probes = result.find(Probes)
    return {site: number for number, site in enumerate(probes.boundaries)} if probes else {}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


ROWS: dict[str, Callable[[RunResult], Iterator[Row]]] = {
    "erasures": _erasures,
    "erased_once": _once,
    "refitted": _refitted,
    "ablations": _ablations,
}

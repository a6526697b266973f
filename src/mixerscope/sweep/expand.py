"""A sweep as data: a base, and what is varied in it."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import field_validator

from mixerscope.errors import UserError
from mixerscope.showing import Shown, counted
from mixerscope.spec import RunSpec, Spec, parse, with_settings

MOST_RUNS = 10_000
"""Of a sweep, unless one says that more are meant."""


class Sweep(Shown, Spec):
    """Every combination of the values in `vary`, each set in `base`."""

    base: dict[str, Any]
    """A run spec as in a spec file; what is varied may be left out. A `RunSpec` will do as well."""
    vary: dict[str, list[Any]] = {}
    """A dotted path such as `train.lr`, and its values. A new architecture starts from its own defaults."""
    note: str = ""
    """What a reader of the file should know; changes no run."""

    @field_validator("base", mode="before")
    @classmethod
    def _as_data(cls, base: Any) -> Any:
        return base.model_dump(mode="json") if isinstance(base, RunSpec) else base

    @field_validator("vary")
    @classmethod
    def _something_to_vary(cls, vary: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for path, values in vary.items():
            if not values:
                raise ValueError(f"{path} has no values to vary over")
        return vary

    def sentence(self) -> str:
        """One line for people."""
        paths = ", ".join(f"{path} ({len(values)})" for path, values in self.vary.items())
        return f"{counted(self.size, 'run')}{f', {paths}' if paths else ''}"

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        return ({"varies": path, "values": values} for path, values in self.vary.items())

    @property
    def size(self) -> int:
        """Combinations."""
        return math.prod(map(len, self.vary.values()))

    def runs(self, settings: Mapping[str, Any] | None = None) -> list[RunSpec]:
        """One spec per combination, the first path varying slowest, each run once; `settings` go over everything."""
        return _each_once(self._run(values, settings or {}) for values in itertools.product(*self.vary.values()))

    def _run(self, values: tuple[Any, ...], settings: Mapping[str, Any]) -> RunSpec:
        chosen = dict(zip(self.vary, values, strict=True))
        try:
            return parse(RunSpec, with_settings(with_settings(self.base, chosen), settings))
        except UserError as error:
            where = ", ".join(f"{path} = {value!r}" for path, value in chosen.items())
            raise UserError(f"{error}{f' (in the sweep at {where})' if where else ''}") from error


def expand(parts: Iterable[Sweep | RunSpec], settings: Mapping[str, Any] | None = None) -> list[RunSpec]:
    """The runs of several sweeps together, in order, each run once."""
    settings = settings or {}
    runs: list[RunSpec] = []
    for part in parts:
        if isinstance(part, Sweep):
            runs += part.runs(settings)
        else:
            runs.append(parse(RunSpec, with_settings(part.model_dump(mode="json"), settings)))
    return _each_once(runs)


def _each_once(runs: Iterable[RunSpec]) -> list[RunSpec]:
    found: dict[str, RunSpec] = {}
    for run in runs:
        before = found.setdefault(run.run_id, run)
        if before.stages != run.stages:
            raise UserError(
                f"the sweep asks for one training ({run.model.architecture}-{run.run_id}) with different stages; "
                "make a sweep of each, one after the other in the same folder, the first with --keep-weights"
            )
    return list(found.values())

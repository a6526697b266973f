"""Where a sweep comes from: a file of data, the name of one that is shipped, or a function that a person named."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mixerscope.errors import UnknownName, UserError
from mixerscope.loading import import_place
from mixerscope.spec import RunSpec, parse, read_data_file
from mixerscope.sweep.expand import MOST_RUNS, Sweep, expand

SHIPPED = Path(__file__).parents[1] / "experiments"
"""Sweep files that come with the package are known by their name alone."""


def load_runs(source: str, settings: Mapping[str, Any] | None = None, most: int | None = MOST_RUNS) -> list[RunSpec]:
    """The runs of a sweep file, of a shipped sweep (`figure3`) or of `module:function`, with `settings` over each.

    More than `most` are refused before they are made.
    """
    parts = _parts(source)
    count = sum(part.size if isinstance(part, Sweep) else 1 for part in parts)
    if most is not None and count > most:
        raise UserError(f"{source} describes {count:,} runs, more than {most:,}; say --yes if that is meant")
    runs = expand(parts, settings)
    if not runs:
        raise UserError(f"{source} describes no runs")
    return runs


def shipped_sweeps() -> dict[str, Path]:
    return {path.stem: path for path in sorted(SHIPPED.glob("*.json"))}


def _parts(source: str) -> list[Sweep | RunSpec]:
    path = Path(source)
    if path.exists() or source.endswith(".json"):
        return _from_file(path)
    if source in shipped_sweeps():
        return _from_file(shipped_sweeps()[source])
    if ":" in source:
        return _from_function(source)
    raise UnknownName("sweep file, module:function or shipped sweep", source, shipped_sweeps())


def _from_file(path: Path) -> list[Sweep | RunSpec]:
    data = read_data_file(path, "sweep file")
    parts = data if isinstance(data, list) else [data]
    try:
        return [parse(Sweep, _described(part)) for part in parts]
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _described(part: Any) -> Any:
    if not isinstance(part, dict):
        raise UserError(f"a sweep is an object with 'base' and 'vary', or a list of them, got {part!r}")
    return part


def _from_function(source: str) -> list[Sweep | RunSpec]:
    place, _, name = source.rpartition(":")
    module, _ = import_place(place)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UnknownName(f"function in {place}", name, known)
    made = _call(function, source)
    parts = list(made) if isinstance(made, list | tuple) else [made]
    for part in parts:
        if not isinstance(part, Sweep | RunSpec):
            raise UserError(f"{source} should return a Sweep or a list of Sweeps and RunSpecs, got {part!r}")
    return parts


def _call(function: Callable[[], Any], source: str) -> Any:
    try:
        return function()
    except Exception as error:  # whatever a person's function raises is theirs to mend
        raise UserError(f"{source} failed: {type(error).__name__}: {error}") from error

"""The sweeps of the figures: data in a file each, which the options of `mixerscope reproduce` narrow.

Runs are what their settings say, so figures that ask for the same runs share them.
"""

import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from mixerscope.errors import UnknownName, UserError
from mixerscope.spec import RunSpec, task_object
from mixerscope.sweep.expand import Sweep, expand

EXPERIMENTS = Path(__file__).parents[1]
WIDTH, RATE, ARCHITECTURE = "model.width", "train.lr", "model.architecture"
STACKED = ("seed", RATE)
"""What differs within a cohort."""
USUAL_PRESET = "clean"


@dataclass(frozen=True)
class Part:
    """Some runs of a figure: a base, what is set in it, what is varied, and stages beside the usual ones."""

    name: str
    base: str
    vary: Mapping[str, Sequence[Any]]
    """Path to values; what is set has one."""
    also: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """The task's name, without its preset."""
        [task] = self.vary.get("task", [settings()["bases"][self.base]["task"]])
        return task_object(task)["name"]


@dataclass(frozen=True)
class Figure:
    """A figure or table of the paper, as a sweep."""

    name: str
    title: str
    about: str
    parts: tuple[Part, ...]
    apart: bool = False
    """Whether its runs have stages of their own, and so a folder of their own; such figures are not among `all`."""

    @property
    def folder(self) -> Path:
        """Where its data lies."""
        return EXPERIMENTS / module_name(self.name)


@dataclass(frozen=True)
class Choice:
    """How much of a figure, and how: the options of `mixerscope reproduce`."""

    preset: str = USUAL_PRESET
    toy: bool = False
    widths: tuple[int, ...] = ()
    seeds: int | None = None
    only: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Path to value, over everything."""

    def __post_init__(self) -> None:
        if self.preset not in settings()["presets"]:
            raise UnknownName("preset", self.preset, settings()["presets"])
        if self.seeds is not None and self.seeds < 1:
            raise UserError(f"--seeds is how many, at least 1, got {self.seeds}")

    @property
    def seed_count(self) -> int:
        source = settings()["toy"] if self.toy else settings()["presets"][self.preset]
        return source["seeds"] if self.seeds is None else self.seeds


@cache
def settings() -> dict[str, Any]:
    """What the sweeps have in common."""
    return json.loads((Path(__file__).parent / "settings.json").read_text(encoding="utf-8"))


def measured_documents(choice: Choice) -> int:
    """On how many documents a run's numbers are measured."""
    path = "stages.patch.documents"
    usual = settings()["toy"]["set"][path] if choice.toy else settings()["patch"]["ar"]["documents"]
    return choice.settings.get(path, usual)


def module_name(figure: str) -> str:
    return figure.replace("-", "_")


@cache
def figure_names() -> tuple[str, ...]:
    """Every figure and table there is a sweep for, in the order of the paper but for Figure 1, which is drawn from the
    runs of others."""
    found = [path.parent.name.replace("_", "-") for path in EXPERIMENTS.glob("*/sweep.json")]
    return tuple(sorted(found, key=_in_the_paper))


def _in_the_paper(name: str) -> tuple[bool, bool, int, str]:
    number = "".join(letter for letter in name if letter.isdigit())
    return not number, name == "fig1", int(number or 0), name


def load_figure(name: str) -> Figure:
    if name not in figure_names():
        raise UnknownName("figure", name, [*figure_names(), "all"])
    data = json.loads((EXPERIMENTS / module_name(name) / "sweep.json").read_text(encoding="utf-8"))
    parts = tuple(_part(part, said) for part, said in data["parts"].items())
    return Figure(name, data["title"], data["about"], parts, data.get("apart", False))


def _part(name: str, said: Mapping[str, Any]) -> Part:
    vary = {path: [value] for path, value in said.get("set", {}).items()}
    vary |= {path: _listed(values) for path, values in said["vary"].items()}
    return Part(name, said["base"], vary, tuple(said.get("also", ())))


def _listed(values: Any) -> list[Any]:
    return settings()["lists"][values.removeprefix("$")] if isinstance(values, str) else values


def sweeps_of(figure: Figure, choice: Choice | None = None) -> list[Sweep]:
    """The sweeps of a figure, one a part, narrowed to what was chosen; a `UserError` where nothing is left."""
    choice = choice or Choice()
    parts = [part for part in (_narrowed(part, choice) for part in figure.parts) if part is not None]
    _refuse_unknown(figure, choice)
    if figure.parts and not parts:
        raise UserError(f"{figure.name} has no runs with all of this: {_asked(choice)}")
    return [_sweep(figure, part, choice) for part in parts]


def share_of_each(figures: Sequence[Figure], choice: Choice) -> list[tuple[Figure, Choice]]:
    """What each of several figures has of a choice. Those that have nothing of it are left out, but for what trains
    nothing anyway; a `UserError` where none has a part, an architecture or a width that was named, or anything."""
    if len(figures) == 1:
        return [(figures[0], choice)]
    for word in choice.only:
        if not any(word in names_of(figure) for figure in figures):
            known = {name for figure in figures for name in names_of(figure)}
            raise UnknownName("part or architecture of any figure", word, known)
    every = sorted({width for figure in figures for width in _widths(figure, choice)})
    for width in choice.widths:
        if width not in every:
            raise UserError(f"the figures have the widths {', '.join(map(str, every))}, not {width}")
    found: list[tuple[Figure, Choice]] = []
    for figure in figures:
        only = tuple(word for word in choice.only if word in names_of(figure))
        widths = tuple(width for width in choice.widths if width in _widths(figure, choice))
        own = replace(choice, only=only, widths=widths)
        named = bool(only or not choice.only) and bool(widths or not choice.widths)
        if not figure.parts or (named and any(_narrowed(part, own) for part in figure.parts)):
            found.append((figure, own))
    if not any(figure.parts for figure, _ in found):
        raise UserError(f"no figure has runs with all of this: {_asked(choice)}")
    return found


def names_of(figure: Figure) -> set[str]:
    """What `--only` may name of a figure: parts and architectures."""
    return {part.name for part in figure.parts} | {name for part in figure.parts for name in part.vary[ARCHITECTURE]}


def _widths(figure: Figure, choice: Choice) -> set[int]:
    if choice.toy and figure.parts:
        return {*settings()["toy"]["widths"]}
    return {width for part in figure.parts for width in part.vary[WIDTH]}


def runs_of(figure: Figure, choice: Choice | None = None) -> list[RunSpec]:
    """The runs of a figure, each once."""
    return expand(sweeps_of(figure, choice))


def _narrowed(part: Part, choice: Choice) -> Part | None:
    vary = dict(part.vary)
    if choice.toy:
        toy = settings()["toy"]
        vary[WIDTH] = toy["widths"][: len(vary[WIDTH])]
        vary[RATE] = toy["rates"]
    if choice.widths:
        vary[WIDTH] = [width for width in vary[WIDTH] if width in choice.widths]
    if choice.only and part.name not in choice.only:
        vary[ARCHITECTURE] = [name for name in vary[ARCHITECTURE] if name in choice.only]
    return Part(part.name, part.base, vary, part.also) if all(vary.values()) else None


def _refuse_unknown(figure: Figure, choice: Choice) -> None:
    known = names_of(figure)
    for word in choice.only:
        if word not in known:
            raise UnknownName(f"part or architecture of {figure.name}", word, known)
    widths = sorted(_widths(figure, choice))
    for width in choice.widths:
        if width not in widths and figure.parts:
            raise UserError(f"{figure.name} has the widths {', '.join(map(str, widths))}, not {width}")


def _asked(choice: Choice) -> str:
    widths = [f"width {width}" for width in choice.widths]
    return ", ".join([*choice.only, *widths]) or "no narrowing"


def _sweep(figure: Figure, part: Part, choice: Choice) -> Sweep:
    common = settings()
    stages = {
        "patch": common["patch"][part.task],
        **common["presets"][choice.preset]["stages"],
        **{name: common["also"][name] for name in part.also},
    }
    over = {**(_toy_settings(part, stages) if choice.toy else {}), **choice.settings}
    vary = {**part.vary, "seed": list(range(choice.seed_count)), **{path: [value] for path, value in over.items()}}
    base = {**common["bases"][part.base], "stages": stages}
    return Sweep(
        base=base, vary={path: list(values) for path, values in vary.items()}, note=f"{figure.name}: {part.name}"
    )


def without(sweeps: Sequence[Sweep], kept: Collection[str]) -> list[Sweep]:
    """What is left of sweeps where the runs with these ids are `kept`: whole cohorts, since a model's last bits may
    depend on which seeds and rates are stacked with it."""
    if not kept:
        return [*sweeps]
    return [cohort for sweep in sweeps for cohort in _cohorts(sweep) if not _all_in(kept, cohort)]


def _cohorts(sweep: Sweep) -> Iterator[Sweep]:
    cells = {path: values for path, values in sweep.vary.items() if path not in STACKED}
    for values in itertools.product(*cells.values()):
        one = {path: [value] for path, value in zip(cells, values, strict=True)}
        yield Sweep(base=sweep.base, vary={**sweep.vary, **one}, note=sweep.note)


def _all_in(kept: Collection[str], cohort: Sweep) -> bool:
    """Looks at one run first: mostly all are there or none, and a spec takes milliseconds."""
    one = Sweep(base=cohort.base, vary={path: values[-1:] for path, values in cohort.vary.items()})
    return all(run.run_id in kept for part in (one, cohort) for run in part.runs())


def _toy_settings(part: Part, stages: Mapping[str, Any]) -> dict[str, Any]:
    toy = settings()["toy"]
    smaller = {f"task.{name}": value for name, value in toy["tasks"][part.task].items()}
    there = {path: value for path, value in toy["set-if-there"].items() if path.split(".")[1] in stages}
    return {**smaller, **toy["set"], **there}


def as_file(sweeps: Sequence[Sweep]) -> str:
    """Sweeps as the text of a file that `mixerscope sweep` and the worker read."""
    return json.dumps([sweep.model_dump(mode="json") for sweep in sweeps], indent=1) + "\n"

"""What varies is the label: runs are named by the settings in which they differ, `mamba d=32 d_conv=2`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import to_json, to_jsonable_python

from mixerscope.registry import ARCHITECTURES, MIXERS
from mixerscope.spec.base import canonical_json
from mixerscope.spec.options import options_model

SHORT = {"model.width": "d", "task.name": "task"}
"""Settings that people call otherwise than their path ends."""
FIRST = ("task.name", "model.width", "model.layers")
"""Those that are named before the others, in this order."""
LAST = ("train.lr", "data_seed", "seed")
OPTIONS = "model.options."
IMPLIED = ("model.architecture", "version", "stages")
"""The architecture is the name itself."""


def flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings as `train.lr` and the like; a list is one setting."""
    found: dict[str, Any] = {}
    _flatten(data, "", found)
    return found


def _flatten(data: Mapping[str, Any], prefix: str, found: dict[str, Any]) -> None:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            _flatten(value, f"{prefix}{key}.", found)
        else:
            found[prefix + key] = value


_quoted = lru_cache(maxsize=256)(canonical_json)


class Parts:
    """Parts of trainings, such as the task, each held once: ten thousand runs of a sweep have few different ones."""

    def __init__(self) -> None:
        self.found: dict[bytes, dict[str, Any]] = {}
        self.texts: dict[int, str] = {}

    def shared(self, training: Mapping[str, Any]) -> dict[str, Any]:
        """The same settings, with the parts of others where they are the same."""
        return {
            name: self.found.setdefault(to_json(value), value) if isinstance(value, dict) else value
            for name, value in training.items()
        }

    def canonical_json(self, shared: Mapping[str, Any]) -> str:
        """That of a training whose parts are shared, each of which is written out once."""
        said = ",".join(f"{_quoted(name)}:{self._text(shared[name])}" for name in sorted(shared))
        return f"{{{said}}}"

    def _text(self, value: Any) -> str:
        if not isinstance(value, dict):
            return _said(value) if type(value) is int else canonical_json(value)
        if id(value) not in self.texts:
            self.texts[id(value)] = canonical_json(value)
        return self.texts[id(value)]


def varying(trainings: Sequence[Mapping[str, Any]], leave_out: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Per training (as `RunSpec.training` gives it): the settings in which those of its architecture differ."""
    return _varying([training["model"]["architecture"] for training in trainings], _facts(trainings), leave_out)


def _facts(trainings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Their settings. An option that came later is missing in older trainings, which are at its default."""
    facts = flattened(trainings)
    for name in {training["model"]["architecture"] for training in trainings}:
        peers = [fact for fact, of in zip(facts, trainings, strict=True) if of["model"]["architecture"] == name]
        settings = {tuple(fact) for fact in peers}  # few, though the runs be many
        there = [{path for path in fact if path.startswith(OPTIONS)} for fact in settings]
        if later := set().union(*there) - set.intersection(*there):
            usual = {path: value for path, value in _defaults(name).items() if path in later}
            for fact in peers:
                fact.update(usual | fact)
    return facts


def flattened(trainings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each as `flat` gives it. Trainings may share their `Parts`, each of which is gone through once."""
    parts: dict[int, dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    for training in trainings:
        fact: dict[str, Any] = {}
        for name, value in training.items():
            if not isinstance(value, dict):
                fact[name] = value
                continue
            if id(value) not in parts:
                parts[id(value)] = flat({name: value})
            fact.update(parts[id(value)])
        found.append(fact)
    return found


def _varying(
    names: Sequence[str], facts: Sequence[Mapping[str, Any]], leave_out: Iterable[str], lacked: bool = True
) -> list[dict[str, Any]]:
    """`lacked`: whether a setting that some do not have differs for that alone."""
    left = (*IMPLIED, *leave_out)
    differing: dict[str, list[str]] = {}
    for name in set(names):
        peers = [fact for other, fact in zip(names, facts, strict=True) if other == name]
        known = dict.fromkeys(path for settings in dict.fromkeys(map(tuple, peers)) for path in settings)
        paths = _ordered(path for path in known if not _is_in(path, left))
        differing[name] = [path for path in paths if _differs(path, peers, lacked)]
    return [{path: fact.get(path) for path in differing[name]} for name, fact in zip(names, facts, strict=True)]


def _defaults(name: str) -> dict[str, Any]:
    """Options of an architecture that have one; none of a component that is not known here."""
    if name in ARCHITECTURES:
        fields = ARCHITECTURES.load(name).model_fields
    elif name in MIXERS:
        fields = options_model(MIXERS.load(name)).model_fields
    else:
        return {}
    known = {name: field for name, field in fields.items() if not field.is_required()}
    return {
        f"{OPTIONS}{name}": to_jsonable_python(field.get_default(call_default_factory=True))
        for name, field in known.items()
    }


def _differs(path: str, peers: Sequence[Mapping[str, Any]], lacked: bool) -> bool:
    values = [fact.get(path) for fact in peers if lacked or path in fact]
    kinds = set(map(type, values))
    if len(kinds) == 1 and values.count(values[0]) == len(values):
        return False
    # What is the same object or text need not be spelled out; 1 and 1.0 are equal, and two settings.
    first, text = values[0], canonical_json(values[0])
    return any(
        not (type(other) is type(first) and other == first) and canonical_json(other) != text for other in values
    )


def labels(
    trainings: Sequence[Mapping[str, Any]], always: Iterable[str] = (), leave_out: Iterable[str] = ()
) -> list[str]:
    """A name for each training: its architecture, what tells it from the others of that architecture, and `always`."""
    always, facts = list(always), _facts(trainings)
    names = [training["model"]["architecture"] for training in trainings]
    # Who lacks a setting is of another task, say, which is told anyway.
    differing = _varying(names, facts, leave_out, lacked=False)
    ordered = {name: _ordered([*always, *differs]) for name, differs in dict(zip(names, differing)).items()}
    return [
        label(name, {path: fact[path] for path in ordered[name] if path in fact})
        for name, fact in zip(names, facts, strict=True)
    ]


def columns(
    trainings: Sequence[Mapping[str, Any]], always: Iterable[str] = (), leave_out: Iterable[str] = ()
) -> list[dict[str, str]]:
    """The same settings for a table: the same names in every row, blank where a training has no such setting."""
    paths = _ordered([*always, *(path for differs in varying(trainings, leave_out) for path in differs)])
    names = _short(paths)
    facts = _facts(trainings)
    return [{names[path]: _said(fact[path]) if path in fact else "" for path in paths} for fact in facts]


def label(architecture: str, settings: Mapping[str, Any]) -> str:
    """`mamba d=32 d_conv=2`: settings by the last part of their path, or the whole one where two end alike."""
    names = _short(settings)
    return " ".join([architecture, *(f"{names[path]}={_said(value)}" for path, value in settings.items())])


def plain(value: Any) -> Any:
    """A setting as one cell of a table."""
    return canonical_json(value) if isinstance(value, list | dict) else value


def _short(paths: Iterable[str]) -> dict[str, str]:
    paths = list(paths)
    ends = [path.rpartition(".")[2] for path in paths]
    return {path: SHORT.get(path, end if ends.count(end) == 1 else path) for path, end in zip(paths, ends, strict=True)}


def _said(value: Any) -> str:
    if type(value) is int:  # most are, and there may be ten thousand
        return str(value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return value if isinstance(value, str) else canonical_json(value)


def _is_in(path: str, left: Iterable[str]) -> bool:
    return any(path == other or path.startswith(f"{other}.") for other in left)


def _ordered(paths: Iterable[str]) -> list[str]:
    paths = list(dict.fromkeys(paths))
    middle = [path for path in paths if path not in (*FIRST, *LAST)]
    return [*(p for p in FIRST if p in paths), *sorted(middle), *(p for p in LAST if p in paths)]

"""Dotted paths into a run spec, such as `train.lr`, `model.options.d_state` or `stages.patch.documents`: which exist,
and how to set one."""

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from mixerscope.errors import UnknownName, UserError
from mixerscope.registry import ARCHITECTURES, MIXERS, STAGES, TASKS
from mixerscope.spec.base import Spec
from mixerscope.spec.options import options_model
from mixerscope.spec.run import USUAL_STAGES, RunSpec, task_object

FIRST = ("task", "task.name", "model", "model.architecture")
"""Which other paths exist depends on these, so they are set before the rest."""


def valid_paths(data: Mapping[str, Any]) -> list[str]:
    """Every path of the run spec that `data` describes, whether `data` holds it or leaves it to the default."""
    paths = list(_fields(RunSpec, ""))
    name = _task_object(data).get("name")
    if isinstance(name, str) and name in TASKS:
        paths += ["task.name", "task.preset", *(f"task.{field}" for field in TASKS.load(name).model_fields)]
    model = data.get("model")
    architecture = model.get("architecture") if isinstance(model, Mapping) else None
    if isinstance(architecture, str):
        paths += [f"model.options.{option}" for option in _option_names(architecture)]
    for stage in STAGES.names():
        paths += [f"stages.{stage}", *_fields(STAGES.load(stage), f"stages.{stage}.")]
    return paths


def with_settings(data: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `data` with each path set. A new task or architecture starts from its own defaults.

    What the old task's fields or the old architecture's options said would be wrong for the new one, or worse, right
    by accident; so they go, and with the architecture its `positions`.
    """
    result: dict[str, Any] = copy.deepcopy(dict(data))
    for path in sorted(settings, key=lambda path: path not in FIRST):
        value = settings[path]
        known = valid_paths(result)
        if path in ("task", "task.name") and isinstance(value, str):
            if _task_object(result) != task_object(value):
                result["task"] = task_object(value)
            continue
        if path not in known:
            raise UnknownName("setting", path, known)
        if path == "model.architecture":
            _change_architecture(result, value)
        _put(result, path, value)
    return result


@cache
def _fields(cls: type[Spec], prefix: str) -> tuple[str, ...]:
    found: list[str] = []
    for name, field in cls.model_fields.items():
        found.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Spec):
            found += _fields(field.annotation, f"{prefix}{name}.")
    return tuple(found)


def _option_names(architecture: str) -> list[str]:
    if architecture in ARCHITECTURES:
        return list(ARCHITECTURES.load(architecture).model_fields)
    return list(options_model(MIXERS.load(architecture)).model_fields) if architecture in MIXERS else []


def _task_object(data: Mapping[str, Any]) -> Mapping[str, Any]:
    task = data.get("task")
    if isinstance(task, str):
        return task_object(task)
    return task if isinstance(task, Mapping) else {}


def _change_architecture(data: dict[str, Any], architecture: Any) -> None:
    model = data.get("model")
    if isinstance(model, dict) and model.get("architecture") != architecture:
        for field in ("options", "positions"):
            model.pop(field, None)


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    here: Any = data
    if parents[:1] == ["stages"]:  # those that are there stay
        given = data.get("stages", USUAL_STAGES)
        data["stages"] = {name: {} for name in given} if isinstance(given, list | tuple) else given
    for depth, part in enumerate(parents):
        inner = here.setdefault(part, {})
        if part == "task" and isinstance(inner, str):
            inner = here[part] = task_object(inner)
        if not isinstance(inner, dict):
            raise UserError(f"cannot set {path}: {'.'.join(parents[: depth + 1])} should be an object, got {inner!r}")
        here = inner
    here[last] = value

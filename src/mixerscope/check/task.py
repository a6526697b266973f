"""Tries every property a task must have."""

from collections.abc import Callable, Mapping
from typing import Any

from mixerscope.check import task_changes as changes
from mixerscope.check import task_meaning as meaning
from mixerscope.check import task_properties as properties
from mixerscope.check.outcome import CheckResult, attempt
from mixerscope.check.task_subject import TaskSubject
from mixerscope.errors import UnknownName, UserError
from mixerscope.registry import TASKS, looks_like_reference
from mixerscope.spec.run import task_object
from mixerscope.tasks.base import Task

TASK_PROPERTIES: dict[str, Callable[[TaskSubject], str]] = {
    "construction": properties.constructed,
    "settings": properties.settings,
    "presets": properties.presets,
    "documents": properties.documents,
    "well_posed": properties.well_posed,
    "repeatable": properties.repeatable,
    "random_state": properties.random_state,
    "splits": properties.splits,
    "roles": properties.roles,
    "single_query": properties.single_query,
    "corruption": changes.corruption,
    "avoid_present": changes.avoid_present,
    "counterfactuals": changes.counterfactuals,
    "states": properties.states,
    "routes": meaning.routes,
    "guessing": meaning.guessing,
    "variants": meaning.variants,
}
"""Each returns what was measured, or raises; `PropertyViolated` carries what was seen instead."""


def check_task(task: str | type[Task], *, fields: Mapping[str, Any] | None = None) -> list[CheckResult]:
    """Tries every property on a task: a name such as `ar` or `atr:paper`, a class, or `path/file.py:Class`."""
    subject = find_task(task, fields or {})
    # Fields that somebody gave and that do not go together are theirs to mend; defaults that do not are the task's.
    callers = (UserError,) if subject.given else ()
    built = attempt("construction", properties.constructed, subject, callers)
    if not built.passed:
        return [built]
    return [built, *(attempt(name, holds, subject) for name, holds in TASK_PROPERTIES.items() if name != built.name)]


def find_task(task: str | type[Task], fields: Mapping[str, Any]) -> TaskSubject:
    """The class and the settings it is tried with; needs a value for every field that has no default."""
    named: dict[str, str] = {}
    cls: Any = task
    if isinstance(task, str):
        # Only what a person typed comes here, so any reference may be imported; `atr:paper` is none.
        named = {"name": TASKS.adopt(task)} if _is_reference(task) else task_object(task)
        cls = TASKS.load(named["name"])
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        raise UserError(f"{task!r} is not a task: it must be a subclass of mixerscope.tasks.Task")
    preset = cls.preset_fields(named["preset"]) if "preset" in named else {}
    for field in fields:
        if field not in cls.model_fields:
            raise UnknownName(f"field of {cls.__name__}", field, cls.model_fields)
    given = {**preset, **fields}
    missing = [name for name, field in cls.model_fields.items() if field.is_required() and name not in given]
    if missing:
        raise UserError(f"{cls.__name__} has no default for {', '.join(missing)}: say what to try it with")
    return TaskSubject(cls, given)


def _is_reference(text: str) -> bool:
    return looks_like_reference(text) or (":" in text and text.partition(":")[0] not in TASKS)

"""What people type or keep in a file, turned into a run spec; every mistake is a `UserError`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixerscope.errors import UnknownName, UserError
from mixerscope.spec.reading import read_data_file, typed_name, typed_settings

if TYPE_CHECKING:
    from mixerscope.spec import RunSpec
    from mixerscope.tasks import Task


def parse_task(text: str, fields: Mapping[str, Any]) -> "Task":
    """The task of a short form such as `ar` or `atr:paper`, with some fields set."""
    from mixerscope.registry import TASKS
    from mixerscope.spec import parse, task_object

    named = task_object(typed_name(text))
    cls = TASKS.load(named["name"])
    for field in fields:
        if field not in cls.model_fields:
            raise UnknownName(f"field of task {named['name']!r}", field, cls.model_fields)
    preset = cls.preset_fields(named["preset"]) if "preset" in named else {}
    return parse(cls, {**preset, **fields})


def read_spec_file(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    data = read_data_file(path, "spec file", f"`mixerscope new spec {path}` writes one")
    if not isinstance(data, dict):
        raise UserError(f"{path} should hold a JSON object with 'task' and 'model', got {type(data).__name__}")
    # A finished run's own spec.json says what it is beside what was asked for.
    return data["spec"] if set(data) == {"identity", "spec"} and isinstance(data["spec"], dict) else data


def make_spec(data: Mapping[str, Any], words: list[str] | None) -> "RunSpec":
    """The run spec of `data` with `--set` words applied, checked as far as it can be without training."""
    from mixerscope.runnable import check_runnable
    from mixerscope.spec import RunSpec, parse, with_settings

    spec: RunSpec = parse(RunSpec, with_settings(data, typed_settings(words)))
    check_runnable(spec)
    return spec

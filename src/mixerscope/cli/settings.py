"""What people type or keep in a file, turned into a run spec; every mistake is a `UserError`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixerscope.errors import UnknownName, UserError

if TYPE_CHECKING:
    from mixerscope.spec import RunSpec
    from mixerscope.tasks import Task


def parse_settings(words: list[str] | None) -> dict[str, Any]:
    """`train.steps=100` and the like. A value is JSON where it can be read as JSON, else text."""
    settings: dict[str, Any] = {}
    for word in words or []:
        path, equals, text = word.partition("=")
        if not equals or not path:
            raise UserError(f"--set takes path=value, such as train.steps=100, got {word!r}")
        try:
            settings[path] = json.loads(text)
        except json.JSONDecodeError:
            settings[path] = text
    return settings


def parse_task(text: str, fields: Mapping[str, Any]) -> "Task":
    """The task of a short form such as `ar` or `atr:paper`, with some fields set."""
    from mixerscope.registry import TASKS
    from mixerscope.spec import parse, task_object

    named = task_object(text)
    cls = TASKS.load(named["name"])
    for field in fields:
        if field not in cls.model_fields:
            raise UnknownName(f"field of task {named['name']!r}", field, cls.model_fields)
    preset = cls.preset_fields(named["preset"]) if "preset" in named else {}
    return parse(cls, {**preset, **fields})


def read_spec_file(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_no_key_twice)
    except FileNotFoundError as error:
        raise UserError(f"there is no spec file {path}; `mixerscope new spec {path}` writes one") from error
    except OSError as error:
        raise UserError(f"cannot read the spec file {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not JSON: it is not UTF-8 text") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path} should hold a JSON object with 'task' and 'model', got {type(data).__name__}")
    return data


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise UserError(f"the key {key!r} stands twice in one object")
        data[key] = value
    return data


def make_spec(data: Mapping[str, Any], words: list[str] | None) -> "RunSpec":
    """The run spec of `data` with `--set` words applied, checked as far as it can be without training."""
    from mixerscope.runs import check_runnable
    from mixerscope.spec import RunSpec, parse, with_settings

    spec: RunSpec = parse(RunSpec, with_settings(data, parse_settings(words)))
    check_runnable(spec)
    return spec

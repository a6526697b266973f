"""What people type or keep in a file, read as data; every mistake is a `UserError`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mixerscope.errors import UserError
from mixerscope.registry import looks_like_reference, use

NAMES_CODE = ("model.architecture", "task", "task.name")
"""Settings whose value may be a class in a file, where a person typed it; a file may not name code to run."""


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
        except (ValueError, RecursionError) as error:
            raise UserError(f"--set {path}: a number of so many digits, or brackets so deep, have no use") from error
    return settings


def typed_settings(words: list[str] | None) -> dict[str, Any]:
    """The settings of `--set`, with classes outside (`model.architecture=mine.py:Mine`) made known."""
    settings = parse_settings(words)
    for path in NAMES_CODE:
        if isinstance(value := settings.get(path), str):
            settings[path] = typed_name(value)
    return settings


def typed_name(text: str) -> str:
    """The name of a component that a person typed: the text itself, or `file.py:Class`, which is imported."""
    reference, colon, preset = text.rpartition(":")
    if colon and looks_like_reference(reference):  # file.py:Class:preset
        return f"{use(reference)}:{preset}"
    return use(text) if looks_like_reference(text) else text


def use_all(references: Sequence[str] | None) -> None:
    """Makes classes outside known that a person named with `--use`."""
    for reference in references or ():
        use(reference)


def read_data_file(path: Path, what: str, hint: str = "") -> Any:
    """The JSON in a file that a person wrote; `what` names the file in errors, `hint` says where to get one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_no_key_twice)
    except FileNotFoundError as error:
        raise UserError(f"there is no {what} {path}{f'; {hint}' if hint else ''}") from error
    except OSError as error:
        raise UserError(f"cannot read the {what} {path}: {error.strerror}") from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not JSON: it is not UTF-8 text") from error
    except ValueError as error:
        raise UserError(f"{path} holds a number of too many digits") from error


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise UserError(f"the key {key!r} stands twice in one object")
        data[key] = value
    return data

"""The fields of a spec and the options of a class as tables: name, type, default, meaning."""

import json
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from rich.table import Table

from mixerscope.cli.console import plain_table


def fields_table(cls: type[BaseModel], title: str) -> Table:
    """One row per field. A field's meaning is the string below it in the source."""
    meanings = {name: " ".join((field.description or "").split()) for name, field in cls.model_fields.items()}
    table = plain_table(title, "type", "default", "meaning" if any(meanings.values()) else "")
    for name, field in cls.model_fields.items():
        default = "required" if field.is_required() else json.dumps(field.get_default(), default=str)
        table.add_row(name, type_name(field.annotation), default, meanings[name])
    return table


def type_name(annotation: Any) -> str:
    """A type as people say it: `int or "long"`, `list of int`."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(inside[0])
    if origin is Literal:
        return " or ".join(json.dumps(value) for value in inside)
    if origin in (Union, UnionType):
        return " or ".join(type_name(part) for part in inside)
    if origin in (tuple, list):
        return f"list of {' or '.join(dict.fromkeys(type_name(part) for part in inside if part is not Ellipsis))}"
    if annotation is NoneType:
        return "null"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)

"""The fields of a spec and the options of a class as tables: name, type, default, meaning."""

import ast
import inspect
import json
import textwrap
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from rich.table import Table

from mixerscope.cli.console import plain_table


def fields_table(cls: type[BaseModel], title: str) -> Table:
    """One row per field. A field's meaning is the string below it in the source."""
    meanings = _attribute_docstrings(cls)
    table = plain_table(title, "type", "default", "meaning" if meanings else "")
    for name, field in cls.model_fields.items():
        default = "required" if field.is_required() else json.dumps(field.get_default(), default=str)
        table.add_row(name, type_name(field.annotation), default, meanings.get(name, ""))
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


def _attribute_docstrings(cls: type) -> dict[str, str]:
    """Strings that follow an annotated attribute, in the class and its bases; none where there is no source."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base is object or base.__module__.partition(".")[0] == "pydantic":
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for line, below in pairwise(body):
            if (
                isinstance(line, ast.AnnAssign)
                and isinstance(line.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[line.target.id] = " ".join(below.value.value.split())
    return found

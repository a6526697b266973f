"""The options of a component are the keyword-only arguments of its class; this binds and fills them in."""

import inspect
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, create_model

from mixerscope.errors import UserError, nearest
from mixerscope.spec.base import one_sentence


def _kernel(value: Any) -> Any:
    if value == "long" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError(f"a kernel is a whole number from 1 on or 'long', got {value!r}")


Kernel = Annotated[int | Literal["long"], BeforeValidator(_kernel)]
"""Width of a convolution; `long` means as long as the document."""


@cache
def options_model(cls: type) -> type[BaseModel]:
    """A pydantic model with one field for each keyword-only argument of `cls.__init__`."""
    try:
        hints = get_type_hints(cls.__init__, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise UserError(f"the options of {cls.__name__} have a type that cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    for index, (name, parameter) in enumerate(inspect.signature(cls.__init__).parameters.items()):
        if index > 1 and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise UserError(f"{cls.__name__}: {name} must stand after `*` in __init__ to be an option")
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[name] = (hints.get(name, Any), default)
    return create_model(f"{cls.__name__}Options", __config__=ConfigDict(extra="forbid", strict=False), **fields)


def resolve_options(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """All options of `cls`, defaults written out; an unknown or ill-typed one is a `UserError`."""
    model = options_model(cls)
    for key in given:
        if key not in model.model_fields:
            raise UserError(f"{cls.__name__} takes no option {key!r}{nearest(key, model.model_fields)}")
    try:
        return model.model_validate(given).model_dump(mode="json")
    except ValidationError as error:
        raise UserError(f"{cls.__name__} option {one_sentence(error)}") from error

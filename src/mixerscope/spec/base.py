"""The base of all specs: frozen, typed, and an unknown key is an error."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from mixerscope.errors import UserError, nearest


class Spec(BaseModel):
    """A frozen value whose fields are its only configuration; an unknown key is an error."""

    size_limit: ClassVar[int] = 10**8
    """Of any whole number in a spec, but for seeds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = list(cls.model_fields)
            for key, value in data.items():
                if key not in known:
                    raise ValueError(f"{cls.__name__} has no field {key!r}{nearest(str(key), known)}")
                cls._refuse_sizes(key, value)
        return data

    @classmethod
    def _refuse_sizes(cls, key: str, value: Any) -> None:
        """Numbers by which nobody could mean anything but harm, before anything of that size is made."""
        field = cls.model_fields[key]
        kind, bounded = field.annotation, any(hasattr(m, "le") or hasattr(m, "lt") for m in field.metadata)
        if isinstance(value, bool) and not _takes(kind, bool):
            raise ValueError(f"{key} should be a number, not {str(value).lower()}")
        if isinstance(value, str) and not _takes(kind, str):
            with suppress(ValueError):
                value = float(value)  # which is read as the number it spells
        free = bounded or key.endswith("seed") or isinstance(value, bool) or _takes(kind, float)
        if isinstance(value, int | float) and not free and abs(value) > cls.size_limit:
            raise ValueError(f"{key} should be at most {cls.size_limit:,}, got {_roughly(value)}")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What differs from the defaults: all that a reader wants, and all that is needed to make it again."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                yield name, value

    def changed(self, **fields: Any) -> Any:
        """A copy with some fields changed, validated anew; a field that is a spec itself takes a spec."""
        for name, value in fields.items():
            if isinstance(value, dict) and isinstance(getattr(self, name, None), Spec):
                raise UserError(
                    f"changed({name}={{...}}) would set all else in {name} back to its defaults; say what is to change"
                    f" in what is there, as in spec.changed({name}=spec.{name}.changed(...))"
                )
        return type(self).model_validate({**{name: getattr(self, name) for name in type(self).model_fields}, **fields})


def _roughly(value: float) -> str:
    try:
        return f"{value:.3g}"
    except OverflowError:  # an integer that no float comes near
        return f"about 10 to the {len(str(abs(value))) - 1}" if abs(value) < 10**4000 else "far more"


def _takes(kind: Any, sort: type) -> bool:
    """Whether a field of this type takes values of that one as they are."""
    return kind in (sort, Any, object) or any(_takes(inner, sort) for inner in get_args(kind))


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """sha256 of the canonical JSON of a value; a zero has no sign."""
    return hashlib.sha256(canonical_json(_unsigned_zeros(value)).encode()).hexdigest()


def _unsigned_zeros(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unsigned_zeros(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_unsigned_zeros(inner) for inner in value]
    return 0.0 if isinstance(value, float) and value == 0 else value


def one_sentence(error: ValidationError) -> str:
    """The first complaint of a pydantic error, with its path, as one sentence."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        message = "this field is required"
    elif first["type"] != "value_error":
        message = f"{message[0].lower()}{message[1:]}, got {first['input']!r:.200}"
    more = error.error_count() - 1
    tail = f" (and {more} more)" if more else ""
    return f"{path}: {message}{tail}" if path else f"{message}{tail}"


def parse(cls: type[Spec], data: Any) -> Any:
    """Validates data from outside into a spec, or raises a `UserError` of one sentence."""
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise UserError(one_sentence(error)) from error

"""Places in a foreign module: how they are written down, found in what flows there, and changed.

What a module takes and gives may be tensors, or tuples, dictionaries and objects around them, in any depth. Whatever is
changed is changed in a copy: what is around it, and what others hold of it, stays as it was.
"""

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from mixerscope.errors import UserError

Change = Callable[[object], Tensor]
Key = int | str

_PLACE = re.compile(r"(?P<path>[^:\[\]]+)(:(?P<side>input|output))?(?P<keys>(\[\w[\w.-]*\])*)")


@dataclass(frozen=True)
class Place:
    """Where a site is in a foreign module: a submodule, its input or output, and which part where that has several."""

    path: str
    side: Literal["input", "output"] = "output"
    keys: tuple[Key, ...] = ()
    """Numbers of elements and names of fields, from the outside in. Of an input the first is the argument: its number
    or its name. Left out: the only tensor, else the first argument, or the first element of a tuple."""

    @staticmethod
    def of(text: str) -> "Place":
        """From `layers.0`, `layers.0:input`, `layers.0:output[1][0]` or `layers.0:input[hidden_states]`."""
        match = _PLACE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UserError(
                f"{text!r} is not a place; write a path such as 'layers.0', ':input' or ':output[1]' after it"
            )
        keys = re.findall(r"\[([^\]]+)\]", match["keys"])
        side: Literal["input", "output"] = "input" if match["side"] == "input" else "output"
        return Place(match["path"], side, tuple(int(key) if key.isdecimal() else key for key in keys))

    def __str__(self) -> str:
        return _written(f"{self.path}:{self.side}", self.keys)

    @contextmanager
    def hooked(self, module: nn.Module, change: Change) -> Iterator[None]:
        """What flows at the place goes through `change`; `module` is the submodule of that path."""

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
            key = self._argument(module, args, kwargs)
            value, inner = (args[key] if isinstance(key, int) else kwargs[key]), self.keys[1:]
            new = _changed(value, inner, change, self, len(self.keys) - len(inner))
            return (_with(args, key, new), kwargs) if isinstance(key, int) else (args, {**kwargs, key: new})

        def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
            if isinstance(output, Tensor) and self.keys == (0,):
                return change(output)  # the only output is the first
            first = (0,) if isinstance(output, tuple | list) and not self.keys else ()
            return _changed(output, self.keys or first, change, self, 0)

        if self.side == "input":
            handle = module.register_forward_pre_hook(before, with_kwargs=True)
        else:
            handle = module.register_forward_hook(after)
        try:
            yield
        finally:
            handle.remove()

    def cut(self, root: nn.Module) -> tuple[str, int] | None:
        """If it is before or after a layer of a list: the list's path, and how many layers are before the place."""
        above, _, number = self.path.rpartition(".")
        if not number.isdecimal() or not isinstance(root.get_submodule(above), nn.ModuleList | nn.Sequential):
            return None
        return above, int(number) + (self.side == "output")

    def _argument(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Key:
        """Which argument of a call is meant: its number in `args`, or its name in `kwargs`."""
        key = self.keys[0] if self.keys else 0
        names = list(inspect.signature(module.forward).parameters)
        if isinstance(key, str):
            if key in kwargs:
                return key
            if key in names[: len(args)]:
                return names.index(key)
        elif key < len(args):
            return key
        elif key < len(args) + len(kwargs):
            meant = names[key] if key < len(names) else ""
            return meant if meant in kwargs else list(kwargs)[key - len(args)]
        by_name = f", and {', '.join(kwargs)} by name" if kwargs else ""
        number = f"{len(args)} argument{'' if len(args) == 1 else 's'}"
        raise UserError(f"there is no {self}: {self.path!r} was called with {number}{by_name}")


def described(value: object) -> str:
    """What it is, in a few words."""
    if isinstance(value, Tensor):
        return "a single tensor"
    if value is None:
        return "nothing (None)"
    kind = type(value).__name__
    if isinstance(value, tuple | list):
        return f"a {kind} of {len(value)}"
    return (
        f"a {kind} with {', '.join(map(str, value)) or 'nothing in it'}" if isinstance(value, Mapping) else f"a {kind}"
    )


def _changed(value: Any, keys: tuple[Key, ...], change: Change, place: Place, depth: int) -> Any:
    """The value with the part at `keys` changed; `depth` of the place's keys led to it."""
    if not keys:
        return change(value)
    key, rest = keys[0], keys[1:]

    def new(part: Any) -> Any:
        return _changed(part, rest, change, place, depth + 1)

    if isinstance(value, tuple | list) and isinstance(key, int) and key < len(value):
        return _with(value, key, new(value[key]))
    if isinstance(value, tuple) and key in getattr(value, "_fields", ()):
        return value._replace(**{key: new(getattr(value, key))})  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        for name in (key, str(key)):
            if name in value:
                changed: Any = copy.copy(value)
                changed[name] = new(value[name])
                return changed
    elif isinstance(key, str) and not isinstance(value, Tensor | tuple | list) and hasattr(value, key):
        part, changed = new(getattr(value, key)), copy.copy(value)
        object.__setattr__(changed, key, part)  # also where the class is frozen
        return changed
    here = _written(f"{place.path}:{place.side}", place.keys[:depth])
    raise UserError(f"there is no {place}: {here} is {described(value)}{_hint(value, here)}")


def _with(values: Any, index: int, new: Any) -> Any:
    """A tuple or list of the same kind with one element replaced."""
    parts = [*values[:index], new, *values[index + 1 :]]
    return values._make(parts) if hasattr(values, "_make") else type(values)(parts)


def _written(start: str, keys: tuple[Key, ...]) -> str:
    return start + "".join(f"[{key}]" for key in keys)


def _hint(value: object, here: str) -> str:
    if isinstance(value, tuple | list) and value:
        return f", so write a number from 0 to {len(value) - 1}, as in '{here}[0]'"
    if isinstance(value, Mapping) and value:
        return f", so write one of these names, as in '{here}[{next(iter(value))}]'"
    return f", so write '{here}'" if isinstance(value, Tensor) else ""

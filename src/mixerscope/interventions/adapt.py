"""Foreign models: any nn.Module, opened at places that the user names.

Nothing is asked of the module but a forward pass: no `.config`, no `.device`, no tokenizer. Its own hooks, weights and
mode are left alone: ours are in place during one forward pass only, and only where something reads or writes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mixerscope.errors import UnknownName, UserError
from mixerscope.model import at_positions
from mixerscope.sites import Site

_PLACE = re.compile(r"(?P<path>[^:\[\]]+)(:(?P<side>input|output))?(\[(?P<element>\w+)\])?")


@dataclass(frozen=True)
class Place:
    """Where a site is in a foreign module: a submodule, its input or output, and which element where it has several."""

    path: str
    side: Literal["input", "output"]
    element: int | str
    """Number of an argument or of an element of a tuple, or the name of a keyword argument."""

    @staticmethod
    def of(text: str) -> "Place":
        """From `layers.0`, `layers.0:input`, `layers.0:output[1]` or `layers.0:input[hidden_states]`."""
        match = _PLACE.fullmatch(text)
        if match is None:
            raise UserError(
                f"{text!r} is not a place; write a path such as 'layers.0', ':input' or ':output[1]' after it"
            )
        element = match["element"] or "0"
        return Place(match["path"], match["side"] or "output", int(element) if element.isdigit() else element)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.path}:{self.side}[{self.element}]"


def adapt(
    module: nn.Module,
    sites: Mapping[str, str],
    *,
    head: str | None = None,
    logits: Callable[[Any], Tensor] | None = None,
    call: Callable[[nn.Module, Tensor], Any] | None = None,
) -> "Adapted":
    """The module with our names for its places, ready for `record`, `edit`, `plan_grid`, `interchange`, `check_model`.

    `sites` maps names (`blocks.0.resid_pre`) to places (`transformer.h.0:input`; see `Place.of`). `head` is the path of
    the layer that makes the logits, which then runs only where they are read. `logits` takes them from what the module
    returns (default: itself, its `.logits` or its first element), `call` runs the module on tokens [n, t].
    """
    return Adapted(module, {name: Place.of(text) for name, text in sites.items()}, head, logits, call)


class Adapted(nn.Module):
    """Built by `adapt`."""

    def __init__(
        self,
        module: nn.Module,
        places: Mapping[str, Place],
        head: str | None,
        logits: Callable[[Any], Tensor] | None,
        call: Callable[[nn.Module, Tensor], Any] | None,
    ) -> None:
        super().__init__()
        known = dict(module.named_modules())
        for path in [place.path for place in places.values()] + ([] if head is None else [head]):
            if path not in known:
                raise UnknownName("submodule", path, [name for name in known if name])
        self.places = dict(places)
        self.head = head
        self._find_logits = logits or _find_logits
        self._call = call or (lambda module, tokens: module(tokens))
        for name in places:
            _put(self, name, Site())
        self.foreign = module

    def forward(self, tokens: Tensor, read: Tensor | None = None) -> Tensor:
        """Logits [n, t, v], or [n, q, v] at the positions `read` [n, q] alone."""
        with ExitStack() as stack:
            for name, place in self.places.items():
                site = self.get_submodule(name)
                assert isinstance(site, Site)
                if site.taps:
                    stack.enter_context(_hooked(self.foreign.get_submodule(place.path), place, site.taps))
            if read is not None and self.head is not None:
                narrow = (lambda x: at_positions(x, read),)
                stack.enter_context(
                    _hooked(self.foreign.get_submodule(self.head), Place(self.head, "input", 0), narrow)
                )
            found = self._find_logits(self._call(self.foreign, tokens))
        return found if read is None or self.head is not None else at_positions(found, read)


def _put(root: nn.Module, name: str, site: Site) -> None:
    """Makes `site` the submodule of that dotted name."""
    *parents, last = name.split(".")
    for parent in parents:
        if not hasattr(root, parent):
            root.add_module(parent, nn.Module())
        root = getattr(root, parent)
    if not last or hasattr(root, last):
        raise UserError(f"{name!r} cannot name a site; write a name such as 'blocks.0.resid_pre'")
    root.add_module(last, site)


def _find_logits(output: Any) -> Tensor:
    found = getattr(output, "logits", output[0] if isinstance(output, tuple | list) else output)
    if not isinstance(found, Tensor):
        raise UserError(f"the module returns {type(output).__name__}; say by `logits` how to find the logits in it")
    return found


@contextmanager
def _hooked(module: nn.Module, place: Place, taps: tuple[Callable[[Tensor], Tensor], ...]) -> Iterator[None]:
    """What flows at the place goes through the taps."""

    def through(x: object) -> Tensor:
        if not isinstance(x, Tensor):
            raise UserError(
                f"at {place} there is {type(x).__name__}, not a tensor; name the element, as in ':output[1]'"
            )
        new = x
        for tap in taps:
            new = tap(new)
        # Vectorised functions round differently on other strides, so an edited tensor is laid out as before.
        same_layout = new is x or new.shape != x.shape or new.stride() == x.stride()
        return new if same_layout else torch.empty_like(x).copy_(new)

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if isinstance(place.element, int) and place.element < len(args):
            return _replaced(args, place.element, through(args[place.element])), kwargs
        key = list(kwargs)[place.element - len(args)] if isinstance(place.element, int) and kwargs else place.element
        if key not in kwargs:
            raise UserError(f"{place.path} was called with {len(args)} arguments and {sorted(kwargs)}, none is {place}")
        return args, {**kwargs, key: through(kwargs[key])}

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, tuple | list):
            assert isinstance(place.element, int)
            return _replaced(tuple(output), place.element, through(output[place.element]))
        return through(output)

    if place.side == "input":
        handle = module.register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = module.register_forward_hook(after)
    try:
        yield
    finally:
        handle.remove()


def _replaced(values: tuple[Any, ...], index: int, new: Any) -> tuple[Any, ...]:
    return (*values[:index], new, *values[index + 1 :])

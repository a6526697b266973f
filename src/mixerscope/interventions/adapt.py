"""Foreign models: any nn.Module, opened at places that the user names.

Nothing is asked of the module but a forward pass: no `.config`, no `.device`, no tokenizer. Its own hooks, weights and
mode are left alone: ours are in place during one forward pass only, and only where something reads or writes.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.places import Place, described
from mixerscope.interventions.states import STATE, is_state
from mixerscope.model import at_positions
from mixerscope.sites import Site


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
    returns (default: itself, its `logits` or its first element), `call` runs the module on tokens [n, t].
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
        if not isinstance(module, nn.Module):
            raise UserError(f"only a torch.nn.Module can be adapted, not {described(module)}")
        # What `torch.compile` returns holds the module that people know the paths of.
        self.foreign: nn.Module = getattr(module, "_orig_mod", module)
        if not places:
            raise UserError("name at least one site, as in adapt(module, {'blocks.0.resid_post': 'layers.0'})")
        for path in [place.path for place in places.values()] + ([] if head is None else [head]):
            _demand(self.foreign, path)
        self.places = dict(places)
        self.head = head
        self._find_logits = logits or _find_logits
        self._call = call or (lambda module, tokens: module(tokens))
        for name in places:
            _put(self, name, Site())

    def forward(self, tokens: Tensor, read: Tensor | None = None) -> Tensor:
        """Logits [n, t, v], or [n, q, v] at the positions `read` [n, q] alone."""
        kept: list[_Kept] = []
        with ExitStack() as stack:
            stack.enter_context(_every_submodule_called(self.foreign))
            for name, place in self.places.items():
                site = self.get_submodule(name)
                assert isinstance(site, Site)
                if site.taps:
                    taps = _Taps(place, site, kept)
                    stack.enter_context(place.hooked(self.foreign.get_submodule(place.path), taps))
            if read is not None and self.head is not None:
                narrow = _Narrow(self.head, tokens, read)
                stack.enter_context(Place(self.head, "input").hooked(self.foreign.get_submodule(self.head), narrow))
            found = self._find_logits(self._call(self.foreign, tokens))
        for place, x, version in kept:
            if x._version != version:
                raise UserError(
                    f"what stands at {place} is overwritten later in the pass; use torch.no_grad() around it"
                )
        if not isinstance(found, Tensor) or not found.is_floating_point():
            raise UserError(f"the logits are {_kind(found)}; say by `logits` how to find numbers [n, t, symbols]")
        if found.dim() != 3:
            raise UserError(f"the logits have shape {list(found.shape)}; they must be [documents, positions, symbols]")
        if read is None:
            return found
        if self.head is None:
            return at_positions(found, read)
        if found.shape[:2] != read.shape:
            raise UserError(f"{self.head!r} is not what makes the logits; name another `head`, or none")
        return found


_Kept = tuple[Place, Tensor, int]
"""A tensor that was read at a place, and how often it had been written to by then."""


class _Taps:
    """What a site's taps make of what flows at its place."""

    def __init__(self, place: Place, site: Site, kept: list[_Kept]) -> None:
        self.place, self.site, self.kept = place, site, kept

    def __call__(self, x: object) -> Tensor:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            hint = f"; name an element, as in '{self.place}[0]'" if isinstance(x, tuple | list | Mapping) else ""
            raise UserError(f"at {self.place} there is {_kind(x)}, not an activation{hint}")
        if x.requires_grad:
            # It must stay the tensor that gradients flow through, so that it is only watched.
            seen = x
            self.kept.append((self.place, x, x._version))
        else:
            seen = x.clone()  # a module may go on to write into the tensor that it holds
        new = seen
        for tap in self.site.taps:
            new = tap(new)
        if new is seen:
            return x
        if new.shape != x.shape:
            raise UserError(f"an edit at {self.place} gives {list(new.shape)} where {list(x.shape)} stands")
        # Vectorised functions round differently on other strides, so an edited tensor is laid out as before.
        same_layout = new.stride() == x.stride() and new.dtype == x.dtype
        return new if same_layout else torch.empty_like(x).copy_(new)


class _Narrow:
    """Hands the head the positions that are read, and no others."""

    def __init__(self, head: str, tokens: Tensor, read: Tensor) -> None:
        self.head, self.tokens, self.read = head, tokens, read

    def __call__(self, x: object) -> Tensor:
        if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[:2] != self.tokens.shape:
            got = list(x.shape) if isinstance(x, Tensor) else described(x)
            raise UserError(f"{self.head!r} gets {got}, not [documents, positions, width]; leave `head` out")
        return at_positions(x, self.read)


def _demand(module: nn.Module, path: str) -> None:
    """Refuses a path that leads nowhere, and says what there is nearby."""
    known = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
    if path in known:
        return
    if not difflib.get_close_matches(path, known):  # a large model has thousands: those next to it will do
        parent = path
        while parent and parent not in known:
            parent = parent.rpartition(".")[0]
        known = [name for name in known if name.rpartition(".")[0] == parent]
    raise UnknownName("submodule", path, known)


class _Names(nn.Module):
    """Holds the sites whose names begin alike."""


def _put(root: nn.Module, name: str, site: Site) -> None:
    """Makes `site` the submodule of that dotted name."""
    refused = UserError(f"{name!r} cannot name a site; write a name such as 'blocks.0.resid_pre'")
    if not isinstance(name, str) or not all(name.split(".")):
        raise refused
    if is_state(name):
        raise UserError(f"{name!r} cannot name a site: '{STATE}' is what a mixer of ours carries on; name it otherwise")
    *parents, last = name.split(".")
    for parent in parents:
        if not hasattr(root, parent):
            root.add_module(parent, _Names())
        root = getattr(root, parent)
        if not isinstance(root, _Names):
            raise refused
    if hasattr(root, last):
        raise refused
    root.add_module(last, site)


def _find_logits(output: Any) -> Tensor:
    if isinstance(output, Mapping):
        found = output.get("logits")
    else:
        first = output[0] if isinstance(output, tuple | list) and output else output
        found = getattr(output, "logits", first)
    if not isinstance(found, Tensor):
        raise UserError(f"the module returns {described(output)}; say by `logits` how to find the logits in it")
    return found


def _kind(x: object) -> str:
    return f"a tensor of {str(x.dtype).removeprefix('torch.')}" if isinstance(x, Tensor) else described(x)


@contextmanager
def _every_submodule_called(module: nn.Module) -> Iterator[None]:
    """No compiled graph and no fused path in here: both pass by the submodules, or by hooks that came later."""
    compiled = any(hasattr(part, "_orig_mod") or part._compiled_call_impl is not None for part in module.modules())
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)

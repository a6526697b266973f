"""Foreign models: any nn.Module, opened at places that the user names.

Nothing is asked of the module but a forward pass: no `.config`, no `.device`, no tokenizer. Its own hooks, weights and
mode are left alone: ours are in place during one forward pass only, and only where something reads or writes.
"""

import difflib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from mixerscope.artifacts.effects import Part, place_of
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.places import Place, described
from mixerscope.interventions.states import STATE, is_state
from mixerscope.model import at_positions
from mixerscope.sites import Site

Parts = Sequence[Sequence[tuple[str, str]]]
"""Per block, component and site of each part."""
INSIDE = "foreign."
"""How the path of everything in the foreign module begins: sites it may have of its own are not among those named."""
WHOLE = "as a whole"
"""What a block is called whose parts are not known: `block 0 as a whole: key → value`."""


def adapt(
    module: nn.Module,
    sites: Mapping[str, str],
    *,
    head: str | None = None,
    logits: Callable[[Any], Tensor] | None = None,
    call: Callable[[nn.Module, Tensor], Any] | None = None,
    heads: Mapping[str, int] | None = None,
    boundaries: Sequence[str] | None = None,
    parts: Parts | None = None,
    longest: int | None = None,
) -> "Adapted":
    """The module with our names for its places, ready for `record`, `edit`, `plan_grid`, `interchange`, `check_model`.

    `sites` maps names (`blocks.0.resid_pre`) to places (`transformer.h.0:input`; see `Place.of`). `head` is the path of
    the layer that makes the logits, which then runs only where they are read. `logits` takes them from what the module
    returns (default: itself, its `logits` or its first element), `call` runs the module on tokens [n, t].

    A verdict needs `boundaries`: the sites of the residual stream before each block and after the last, in order
    (default: `blocks.0.resid_pre`, ..., and the last `resid_post`, where all are named). `parts` says of each block
    what moves information between positions, as (component, site just after it); left out, the block as a whole.
    `heads` says how many heads a site has, whose activation [n, t, h d] or [n, t, h, d] is then [n, t, h, d]. A proof
    tries longer documents than usual: `longest` is how many tokens the module can take.
    """
    if not isinstance(sites, Mapping):
        raise UserError(f"sites is a map such as {{'blocks.0.resid_post': 'layers.0'}}, not {described(sites)}")
    places = {name: Place.of(text) for name, text in sites.items()}
    return Adapted(module, places, head, logits, call, heads or {}, boundaries, parts, longest)


class Adapted(nn.Module):
    """Built by `adapt`."""

    width: int | None = None
    """Of the residual stream, and the number of tokens: nobody says."""
    vocabulary: int | None = None

    def __init__(
        self,
        module: nn.Module,
        places: Mapping[str, Place],
        head: str | None,
        logits: Callable[[Any], Tensor] | None,
        call: Callable[[nn.Module, Tensor], Any] | None,
        heads: Mapping[str, int],
        boundaries: Sequence[str] | None,
        parts: Parts | None,
        longest: int | None,
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
        self.longest = longest
        self._find_logits = logits or _find_logits
        self._call = call or (lambda module, tokens: module(tokens))
        _known(heads, places)
        for name in places:
            _put(self, name, Site(heads.get(name, 1)))
        self._boundaries = _by_name(places) if boundaries is None else tuple(boundaries)
        _known(self._boundaries, places)
        self._parts = _blocks(self._boundaries, parts, places, heads)
        _apart(self.foreign, self._boundaries, places)
        _warn_of_hidden_layers(self.foreign, [places[name] for name in self._boundaries])

    @property
    def shape(self) -> object:
        """What two models must have in common to run as one: this one has nobody of its kind."""
        return self

    def boundaries(self) -> tuple[str, ...]:
        """Sites of the residual stream: before each block, and after the last; none where none were named."""
        return self._boundaries

    def parts(self) -> tuple[tuple[Part, ...], ...]:
        """Per block, the parts that move information between positions; where they are unknown, the block itself."""
        return self._parts

    def forward(self, tokens: Tensor, read: Tensor | None = None) -> Tensor:
        """Logits [n, t, v], or [n, q, v] at the positions `read` [n, q] alone."""
        if self.longest is not None and tokens.shape[1] > self.longest:
            raise UserError(
                f"a document of {tokens.shape[1]} tokens is longer than the {self.longest} the module takes"
            )
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
        new = seen = self._by_head(seen)
        for tap in self.site.taps:
            new = tap(new)
        if new is seen:
            return seen.reshape(x.shape) if x.requires_grad else x
        if new.shape != seen.shape:
            raise UserError(f"an edit at {self.place} gives {list(new.shape)} where {list(seen.shape)} stands")
        # A copy, since the module may write into what it gets; and laid out as before, since vectorised functions round
        # differently on other strides.
        return torch.empty_like(x).copy_(new.reshape(x.shape))

    def _by_head(self, x: Tensor) -> Tensor:
        """[n, t, h d] -> [n, t, h, d] where the site has heads."""
        heads = self.site.heads
        if heads == 1 or (x.dim() > 3 and x.shape[2] == heads):
            return x
        if x.dim() != 3 or heads < 1 or x.shape[2] % heads:
            raise UserError(f"at {self.place} there is {list(x.shape)}, which is not divided into {heads} heads")
        return x.unflatten(2, (heads, -1))


class _Narrow:
    """Hands the head the positions that are read, and no others."""

    def __init__(self, head: str, tokens: Tensor, read: Tensor) -> None:
        self.head, self.tokens, self.read = head, tokens, read

    def __call__(self, x: object) -> Tensor:
        if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[:2] != self.tokens.shape:
            got = list(x.shape) if isinstance(x, Tensor) else described(x)
            raise UserError(f"{self.head!r} gets {got}, not [documents, positions, width]; leave `head` out")
        return at_positions(x, self.read)


def _by_name(names: Iterable[str]) -> tuple[str, ...]:
    """The boundaries that are named as ours are, if all of them are."""
    last = max((place_of(name)[0] for name in names), default=0)
    found = *(f"blocks.{i}.resid_pre" for i in range(last + 1)), f"blocks.{last}.resid_post"
    return found if {*found} <= {*names} else ()


def _blocks(
    boundaries: tuple[str, ...], parts: Parts | None, names: Iterable[str], heads: Mapping[str, int]
) -> tuple[tuple[Part, ...], ...]:
    """Per block its parts, or the block itself."""
    ends = boundaries[1:]
    if len({*boundaries}) < len(boundaries) or len(boundaries) == 1:
        raise UserError("boundaries are different sites: before each block in order, and one after the last")
    if parts is not None and len(parts) != len(ends):
        raise UserError(f"{len(boundaries)} boundaries make {len(ends)} blocks, but parts are given for {len(parts)}")
    found: list[tuple[Part, ...]] = []
    for end, block in zip(ends, [()] * len(ends) if parts is None else parts, strict=True):
        if not all(isinstance(part, tuple) and len(part) == 2 for part in block):
            raise UserError(f"parts are pairs such as ('attention', 'blocks.0.mixer_out'), not {block!r}")
        _known([site for _, site in block], names)
        own = tuple(Part(component, site, heads.get(site, 1)) for component, site in block)
        found.append(own or (Part(WHOLE, end),))
    return tuple(found)


def _warn_of_hidden_layers(module: nn.Module, boundaries: Sequence[Place]) -> None:
    """Says where one block of the map is several layers of the module: a route through them looks like one step."""
    cuts = [place.cut(module) for place in boundaries]
    if len(lists := {cut[0] for cut in cuts if cut is not None}) == 1:
        # What is at the edge of no layer stands before all of them, or behind: an embedding, a last norm.
        [path] = lists
        cuts[0], cuts[-1] = cuts[0] or (path, 0), cuts[-1] or (path, len([*module.get_submodule(path).children()]))
    for before, after in pairwise(cuts):
        if before is not None and after is not None and before[0] == after[0] and after[1] - before[1] > 1:
            layers = f"{before[0]}.{before[1]} to {before[0]}.{after[1] - 1}"
            message = (
                f"one block of this map is {layers}, and a verdict cannot tell them apart; name a site between them"
            )
            warnings.warn(message, stacklevel=4)


def _apart(module: nn.Module, names: Sequence[str], places: Mapping[str, Place]) -> None:
    """Refuses two boundaries that are one place: the block between them would be none."""
    at: dict[object, str] = {}
    for name in names:
        where = places[name].cut(module) or places[name]
        if where in at:
            raise UserError(f"the boundaries {at[where]!r} and {name!r} are one place, with no block between them")
        at[where] = name


def _known(sites: Iterable[str], names: Iterable[str]) -> None:
    for site in sites:
        if site not in names:
            raise UnknownName("site", site, names)


def _demand(module: nn.Module, path: str) -> None:
    """Refuses a path that leads nowhere, and says what there is nearby."""
    modules = dict(module.named_modules(remove_duplicate=False))
    known = [name for name in modules if name]
    if path in known:
        scripted = next((x for x in (module, modules[path]) if isinstance(x, torch.jit.ScriptModule)), None)
        if scripted is not None:
            raise UserError(f"{path!r} is TorchScript, which calls no hooks; adapt the module that it was made from")
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
